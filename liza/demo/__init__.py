"""`liza demo`: a whole crew with scripted agents on a small project.

`run.py` prints the events and answers the coder's question. `demo_crew.py` makes the project, starts the supervisors
and tests the result.
`agents/` holds the scripted programs; they start like any agent program and import nothing else of Liza.
`native_run.py` is `liza demo --native`: a crew of the workers in `examples/worker.py`.
Read `run.py` first, then `agents/coder.py`.
"""
