"""The server of the worker API as a process of the crew: its start, its end, and that it runs. The server itself is in
`server/`.

`server_start.py` starts it and waits until it listens; `server_failure.py` is the record of why it does not;
`server_keeper.py` is the thread of a supervisor that starts it again. Read `api_server.py` first.
"""
