"""Alarms that are sent to a person elsewhere: which, when, and to which targets.

`quiet_hours.py` reads the hours in which nothing is sent; `target_names.py` checks and names targets without their
credentials. Read `notice_rules.py` first.
"""
