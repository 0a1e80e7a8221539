"""Decisions of the ACP sidecar (Agent Client Protocol). Pure: facts are arguments, each function returns a decision.

Offers: the next step of a session (`session_steps`), how a turn ended (`turn_results`), what a tool call is and
which answer a permission request gets (`tool_requests`), the usage of a turn (`usage_counts`).
Read `session_steps.py` first.
"""
