"""Merging of APPROVED tasks into the integration branch, or into the branch of their epic.

Which task is merged next (`sessions/decide.py` decides who merges), what the board records at each step, when a failed
merge is retried and when it goes back to its coder. `merge_queue.py` has the order and chooses batches,
`batch_search.py` finds the red task in a batch, `merge_batches.py` records it, `gates.py` has the checks of a
candidate. `targets.py` says into which branch a task is merged, `epic_rules.py` when an epic lands. `merge_failures.py`
formats and reads failure texts; `merge_alarms.py` builds the alarms.
Read `merge_rules.py` first.
"""
