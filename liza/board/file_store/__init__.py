"""The board in `.liza/state.yaml`, changed in transactions under one file lock.

A commit writes the new board, a line of the journal with its changes, and the write intent before it renames the new
board (`commit_steps.py`). `repair.py` completes or undoes what a crash left, and accepts edits from outside, at the
start of the next transaction. `archive_files.py` has the closed tasks, `signal_files.py` PAUSE, CHECKPOINT and ABORT.
Read `file_board.py` first, then `commit_steps.py` and `repair.py`.
"""
