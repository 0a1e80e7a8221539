"""What mergers share: test a candidate, record the outcome, recover from a dead merger.

`candidate.py` runs set-up and tests on a candidate in the merge slot. `merge_outcomes.py` records success or failure
on the board and cleans up. `dead_mergers.py` completes or undoes the merge of a process that died. The caller holds
the merge lock. `merge_turn.py` lets one supervisor start a merger; `merge_blocker.py` names another program that
holds one of the two locks.
Read `merge_outcomes.py` first.
"""
