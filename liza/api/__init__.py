"""The worker API: what the runtime of an agent and Liza tell each other over HTTP, `liza hook` and ACP.

Each surface has a module, with its requests and answers: `lifecycle.py`, `prompts.py`, `health.py` and `identity.py`.
`operations.py` is the table of the operations and the OpenAPI document; `calls.py` finds who sent a request,
`application.py` reads and answers it, `serve.py` is the process and its addresses. Specification: specs/worker-api.md.
Read `operations.py` first, then `application.py`.
"""
