"""The command line: parses arguments, calls one verb, prints its result. It decides nothing.

`entry_points.py` has `liza` and `liza-agent`, and turns every error into a message and an exit code. `liza/client.py`
calls it, unless a command server runs the command. `command_table.py` maps
each command to the module that declares it; `app.py` loads that module on demand.
Sub-packages: `commands/` (declarations), `render/` (text for people).
Read `entry_points.py` first, then `command_table.py` and `commands/steer_commands.py`.
"""
