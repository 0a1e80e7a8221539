"""Send alarms to a person elsewhere, without blocking the caller.

`notice_targets.py` checks targets and reads their addresses. `deliveries.py` delivers one notice, through a child
process (`child_run.py`) that is killed after a time limit, and records it. `apprise_child.py` is the program of that
child and the only module that imports apprise.
The rules are in `rules/notices`.
Read `notice_senders.py` first.
"""
