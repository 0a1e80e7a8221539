"""Merging of APPROVED tasks into the integration branch.

Which task is merged next (`sessions/decide.py` decides who merges), what the board records at each step, when a failed
merge is retried and when it goes back to its coder. `merge_failures.py` formats and reads failure texts;
`merge_alarms.py` builds the alarms.
Read `merge_rules.py` first.
"""
