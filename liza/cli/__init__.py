"""The command line: parses arguments, calls one verb, prints its result. It decides nothing.

`entry_points.py` has `liza` and `liza-agent`, and turns every error into a message and an exit code. `liza/client.py`
calls it, unless a command server runs the command. `app.py` finds the file of the typed command in `liza/commands`.
Read `entry_points.py` first, then `app.py`.
"""
