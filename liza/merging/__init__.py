"""The merge queue: build and test candidates, publish tested commits, recover from a dead merger.

`batches.py` builds and merges a batch, `candidate_tests.py` tests it with its gates. `merge_outcomes.py`
records the result on the board. `merge_recovery.py` completes or undoes the batch of a process that died.
Read `rules/merge_rules.py` first, then `batches.py`.
"""
