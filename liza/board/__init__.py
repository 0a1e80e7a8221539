"""The board: one YAML file, changed in transactions under one lock.

`store.Board` offers `read` and `transaction`. A commit writes the new board, a line of the journal with its changes,
and the write intent before it renames the new board (`commit_steps.py`). `revision_texts.py` rebuilds texts from these
lines. `repair.py` completes or undoes what a crash left, and accepts edits from outside, at the start of the next
transaction. `events.py` reports changes of the board and of the signal files.
Sub-package: `text/`, the YAML text. Read `store.py` first, then `commit_steps.py` and `repair.py`.
"""
