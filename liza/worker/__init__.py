"""The worker API: what an agent's runtime and Liza tell each other, one function per surface.

Three entry points call these functions and add nothing: `liza hook`, the HTTP server and the ACP sidecar. Requests and
answers are in `api_requests` and `api_answers`; what is decided, and why, is in `rules/worker_api`.
Read `api_requests.py` first.
"""
