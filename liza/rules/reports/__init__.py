"""Texts for people and planners: alarms, news, durations and suggested commands.

`alarms.py` lists every condition that needs attention, each with one next command. `narration.py` describes what
happened between two revisions.
Read `alarms.py` first.
"""
