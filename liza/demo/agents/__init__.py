"""Scripted agent programs of the demo: planner, coder and reviewer.

Each knows only its instructions file and what `liza ready` prints, as a model would. They read no board and no
variable of Liza, and import only one another.
Read `agent_commands.py` first, then `coder.py`.
"""
