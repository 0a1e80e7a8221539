"""Services that several verbs and the supervisor share, over one crew: board, repository, programs, clock.

`Crew` in `crew.py` opens the board, git and the worktrees on first use; `caller.py` tells an agent's run from a
person; `result.py` is what a verb returns. The other modules serve one question each: activity, layout of `.liza`,
drafts, usage.
Sub-packages: `recovery/` (what a crash left), `merging/`, `drift/` (changes made outside liza), `project/` (the
user's tests).
Read `crew.py` first, then `caller.py`.
"""
