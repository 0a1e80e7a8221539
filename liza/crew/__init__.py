"""The opened crew: its board, repository, programs and clock; the caller of a verb, and its result.

`Crew` in `crew.py` opens the board, git and the worktrees on first use; `caller.py` tells an agent's run from a
person; `result.py` is the return type of verbs.
Read `crew.py` first, then `caller.py`.
"""
