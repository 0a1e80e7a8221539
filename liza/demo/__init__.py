"""`liza demo`: a whole crew with scripted agents on a small project.

`run.py` starts the supervisors, prints the events and answers the coder's question. `checks.py` tests the result.
`agents/` holds the scripted programs; they start like any agent program and import nothing else of Liza.
`native_run.py` is `liza demo --native`: a crew of the workers in `examples/worker.py`.
Read `run.py` first, then `agents/coder.py`.
"""
