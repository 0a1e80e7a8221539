"""git: the only package that runs it.

`runner.Git` runs git with hooks, prompts and signing switched off, in a process group with a timeout.
`run_git.py` makes the git directory that a box sees, `run_import.py` imports what a run committed there.
Sub-packages: `slots/` (worktrees of the agents), `merge/` (candidates and moving branches), `hiding/` (keep the brief
out of git).
Read `runner.py` first.
"""
