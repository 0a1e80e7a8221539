"""The life of a task: add, claim, submit, review, block, plan, give back.

Each function checks a request against the board and returns the changed board. Status changes go through
`transitions.apply_verb`. `picking.py` decides which task an agent may claim; `planning.py` decides when a planner is
woken.
Read `claims.py` first: two-phase claims, leases and fencing. Then `picking.py`.
"""
