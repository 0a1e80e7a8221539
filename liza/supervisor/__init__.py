"""One supervisor process per agent: starts its sessions, watches them, merges, renews leases.

`loop.Supervisor` repeats four steps: gather a `Situation` (`situation.py`, `observe.py`, `run_evidence.py`), decide
(`liza.rules.sessions.decide`), run the action (`action_runner.py`), wait for an event. `launch.py` starts a session,
`conclude.py` records its end, `memory.py` holds state that may be lost.
The process starts in `main.supervise`. Read `loop.py` first, then `action_runner.py`.
"""
