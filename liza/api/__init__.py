"""The worker API: what the runtime of an agent and Liza tell each other over HTTP, `liza hook` and ACP.

One function for each surface (`telemetry.py`, `prompts.py`, `context.py`, …). `operation_table.py` is the table of the
operations; `application.py` reads a request, `callers.py` finds who sent it, `listener.py` is the HTTP library,
`serve.py` the process. Specification: specs/worker-api.md.
Read `operation_table.py` first, then `application.py`.
"""
