"""The HTTP server of the worker API: an entry point, as `cli` is one. It adds nothing to `worker/` and `verbs/`.

`operations/` is the table of the operations. `application.py` reads a request, finds the caller (`callers.py`) and
writes the answer; `problems.py` turns an error into a problem document; `streams/` has the stream of a run;
`sockets.py` has the addresses, `listener.py` the HTTP library, `serve.py` the process. Specification:
specs/worker-api.md. Read `serve.py` first.
"""
