"""The user's project: how it is set up and tested, and what its tests prove.

Detects test and set-up commands, cleans the environment of child processes, chooses the directory of the worktree
slots, and judges whether the tests test the checkout that they run in.
Read `project_kinds.py` first, then `test_proof.py`.
"""
