"""The command server: a process that has imported everything, and forks for each command that ``liza`` sends.

It saves the imports of each command, and changes nothing else: a command has the arguments, environment, directory,
descriptors, limits and rights of the process that was typed, and that process decides who calls. Nothing depends on
it: without this package every command runs directly. `liza/client.py` is its other side.

- `server.py`: the process: accepts, forks, reports how commands end.
- `served_command.py`: the forked process: becomes like the client, then runs the command.
`system/server_control.py` starts, finds and stops the server.
Read `served_command.py` first.
"""
