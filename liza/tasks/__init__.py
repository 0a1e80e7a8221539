"""The life of a task: add, claim, submit, review, hand off, block, plan.

A verb is one module here: it identifies its caller, changes the board with a rule of `rules/`, and returns a result.
Read `rules/claims.py` first: two-phase claims and fencing. Then `rules/leases.py` and `claim.py`.
"""
