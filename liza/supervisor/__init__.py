"""One supervisor process per agent: starts its sessions, watches them, renews leases, starts mergers.

`loop.Supervisor` repeats four steps: gather a `Situation` (`situation.py`, `observe.py`), decide (`rules/decide.py`),
run the action (`action_runner.py`), wait for an event. `launch.py` starts a session, `session_files.py` writes what it
finds, `message_carrier.py` delivers what is said in it, `conclude.py` records its end, `memory.py` holds state that may
be lost. Any supervisor may merge any approved task: the first that takes the turn does.
The process starts in `main.supervise`. Read `loop.py` first, then `action_runner.py`.
"""
