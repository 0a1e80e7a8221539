"""What mergers share: build and test a batch of candidates, publish it, recover from a dead merger.

`batches.py` builds and merges a batch: `candidate.py` tests one of them, `gate_runner.py`
runs its gates in merge slots, `gate_log.py` records their runs. `merge_outcomes.py` records success or failure
on the board and cleans up. `dead_mergers.py` completes or undoes the batch of a process that died. The caller holds
the merge lock. `target_tips.py` has the tips of the branches that are merged into; `epic_branches.py` creates and
restores those of epics, `epic_merges.py` lands and updates them.
`merge_turn.py` lets one supervisor start a merger; `merge_blocker.py` names another program that holds one of the two
locks.
Read `batches.py` first.
"""
