"""Build merge candidates and move branches to them.

`merges.py` merges commits without a checkout and moves the branch by compare-and-swap. If a checkout has the branch,
`branch_moves.py` moves branch, files and index together; its intent file is a write-ahead log, so a killed move is
completed or undone. `merge_refs.py` holds the refs that protect reviewed commits and tested candidates.
`landed_work.py` judges what of integration a branch has after a squash merge.
`absent_checkouts.py` records checkouts that were missing when their branch moved.
Read `merges.py` first, then `branch_moves.py`.
"""
