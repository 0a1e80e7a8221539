"""One supervisor process per agent: starts its sessions, watches them, renews leases, starts mergers.

`loop.Supervisor` repeats four steps: gather a `Situation` (`situation.py`, `observe.py`, `observe.py`), decide
(`liza.supervisor.rules.decide`), run the action (`action_runner.py`: it also renews the lease), wait for an event.
`launch.py` starts a session, `speech/` is what is said in it, `conclude.py` records its end, `memory.py` holds state
that may be lost. Any supervisor may merge any approved task: the first that takes the merge lock does.
The process starts in `main.supervise`. Read `loop.py` first, then `action_runner.py`.
"""
