"""Repair what crashed processes leave behind, and report it: `doctor`, `validate`, `gc`, `slots`, `restore`.

`recover.recover_crew` runs at the start of every supervisor and in `liza doctor --fix`; each step is idempotent.
`findings.py` reports the same conditions and changes nothing.
Read `recover.py` first, then `findings.py`.
"""
