"""Alarms: what waits for a person or went wrong, each with its command; `watch`, `explain` and notices.

`current_alarms.py` collects them; `notice_process.py` is the process that sends them elsewhere.
Read `current_alarms.py` first, then `rules/alarms.py`.
"""
