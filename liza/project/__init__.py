"""The user's project: its kind, its set-up and its tests, and the proof that the tests test the worktree.

`detect.py` reads the project's files; `commands.py` runs a command with a time limit; `proof.py` runs the tests in a
throw-away slot, then again with broken sources.
Read `commands.py` first, then `proof.py`.
"""
