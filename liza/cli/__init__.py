"""The command line: parses arguments, calls one verb, prints its result. It decides nothing.

`console_script.py` is the console script `liza`, which answers a usual hook without further imports. `entry_points.py`
has `liza-agent` and all other commands, and turns every error into a message and an exit code. `command_table.py` maps
each command to the module that declares it; `app.py` loads that module on demand.
Sub-packages: `commands/` (declarations), `render/` (text for people).
Read `entry_points.py` first, then `command_table.py` and `commands/steer_commands.py`.
"""
