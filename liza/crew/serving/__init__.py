"""The processes of a crew beside its supervisors. The server of the worker API: its start, its end, and that it runs;
the server itself is in `server/`. The keeper, which is in `up/`: its start.

`server_start.py` starts it and waits until it listens; `server_failure.py` is the record of why it does not;
`server_keeper.py` is the thread of a supervisor that starts it again; `keeper_start.py` starts the keeper;
`stopped_processes.py` finds processes that a signal stopped.
Read `api_server.py` first.
"""
