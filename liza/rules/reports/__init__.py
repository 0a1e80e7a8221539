"""What people and planners are told: alarms, news, durations and suggested commands.

`alarms.py` lists every condition that needs attention, each with one next command. `narration.py` describes what
happened between two revisions.
Read `alarms.py` first.
"""
