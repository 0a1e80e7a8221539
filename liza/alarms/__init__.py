"""Alarms: what waits for a person or went wrong, each with its command; `watch`, `explain` and notices.

`current_alarms.py` collects them; `notice_senders.py` sends them elsewhere without blocking the caller.
Read `current_alarms.py` first, then `rules/alarms.py`.
"""
