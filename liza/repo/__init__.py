"""git: the only package that runs it.

`runner.Git` runs git with hooks, prompts and signing switched off, in a process group with a timeout.
`board_history.py` commits each board revision to a ref. `run_git.py` makes the git directory that a box sees instead of
that of the repository; `run_import.py` imports what a run committed there, and `run_refs.py` reads its refs. The other
modules read refs, configuration and the state of a work tree.
Sub-packages: `slots/` (worktrees of the agents), `merge/` (candidates and moving branches), `hiding/` (keep the brief
out of git). The package knows the rules and `liza.system`, but neither the board's files nor programs.
Read `runner.py` first.
"""
