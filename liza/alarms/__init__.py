"""Alarms: what waits for a person or went wrong, each with its command; `watch`, `explain` and notices.

`current_alarms.py` collects them; `notice_sender.py` is the process that sends them elsewhere.
Read `current_alarms.py` first, then `rules/alarm_checks.py`. The sentence and the command of each kind are in
`model/alarm_table.py`.
"""
