"""Repair what crashed processes leave behind, and report it: `doctor`, `validate`, `gc`, drift.

`recover.recover_crew` runs at the start of every supervisor and in `liza doctor --fix`; each step is idempotent.
`findings.py` reports the same conditions and changes nothing. `drift.py` finds changes that were made outside of Liza.
Read `recover.py` first, then `findings.py`.
"""
