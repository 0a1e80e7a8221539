"""What mergers share: test a candidate, record the outcome, recover from a dead merger.

`candidate.py` runs set-up and tests on a candidate in the merge slot. `merge_outcomes.py` records success or failure
on the board and cleans up. `dead_mergers.py` completes or undoes the merge of a process that died. The caller holds
the merge lock.
Read `merge_outcomes.py` first.
"""
