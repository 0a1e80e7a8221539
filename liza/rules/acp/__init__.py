"""Decisions of the ACP sidecar (Agent Client Protocol). Pure: facts are arguments, each function returns a decision.

Offers: the next step of a session (`session_steps`), how a turn ended (`turn_results`), what a tool call is
(`tool_requests`), which answer a permission request gets (`permission_options`), the usage of a turn (`usage_counts`).
Read `session_steps.py` first.
"""
