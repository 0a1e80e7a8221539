"""The board: one YAML file, changed in transactions under one lock.

`store.Board` offers `read` and `transaction`. A commit writes journal, write intent and spool before it renames the
new board (`commit_steps.py`). `repair.py` completes or undoes what a crash left, and accepts edits from outside, at the
start of the next transaction. `events.py` reports changes of the board and of the signal files.
Sub-package: `text/`, the YAML text. Read `store.py` first, then `commit_steps.py` and `repair.py`.
"""
