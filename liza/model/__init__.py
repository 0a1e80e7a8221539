"""What is on the board: tasks, agents, statuses, transitions, invariants and errors. Pure.

Read `model.py` first, then `transitions.py`.
"""
