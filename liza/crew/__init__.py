"""Services over one crew (board, repository, programs, clock) that several verbs and the supervisor share.

`Crew` in `crew.py` opens the board, git and the worktrees on first use; `caller.py` tells an agent's run from a
person; `result.py` is the return type of verbs. The other modules have one subject each: activity, layout of
`.liza`, drafts, usage.
Sub-packages: `archive/` (closed tasks), `recovery/` (what a crash left), `merging/`, `drift/` (changes made outside
liza), `project/` (the user's tests).
Read `crew.py` first, then `caller.py`.
"""
