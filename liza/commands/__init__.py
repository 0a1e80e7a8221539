"""One file for each command of ``liza``: its options, heading, example and process, the call of its verb, the output.

The name of the file is the name of the command; a group such as ``task`` is one file. `liza/cli/app.py` finds a command
by its file, so nothing else lists it. `liza_agent.py` is ``liza-agent``; `_declare.py` has what the files share.
To add a command, follow the steps for a verb in CONTRIBUTING.md.
Read `pause.py` first, then `merge.py` and `task.py`.
"""
