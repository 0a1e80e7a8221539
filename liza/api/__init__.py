"""The worker API: what the runtime of an agent and Liza tell each other over HTTP, `liza hook` and ACP.

Each surface has a module, with its requests and answers: `lifecycle.py`, `prompts.py`, `health.py`, `identity.py` and
`identity.py`. `operations.py` is the table of the operations; `calls.py` finds who sent a request, `application.py`
reads and answers it, `listener.py` is the HTTP library, `serve.py` the process. Specification: specs/worker-api.md.
Read `operations.py` first, then `application.py`.
"""
