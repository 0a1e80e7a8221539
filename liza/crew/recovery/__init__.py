"""Repair what crashed processes leave behind: reservations, worktrees, orphans, merges.

`recover.recover_crew` runs at the start of every supervisor and in `liza doctor --fix`; each step is idempotent.
`findings.py` reports the same conditions for `liza doctor` and changes nothing. The other modules each repair one
thing: orphan sessions, orphan slots, slots of an earlier crew, a moved repository. `recorder.py` commits spooled board
revisions to the history; `saved_specs.py` saves people's files before a purge.
Read `recover.py` first, then `findings.py`.
"""
