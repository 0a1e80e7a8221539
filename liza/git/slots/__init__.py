"""Slots: git worktrees that are created once and reused from task to task.

`pool.Worktrees` prepares a slot for a claim, finishes it, and releases it. `slot_emptying.py` finds, opens, creates
and empties slots. Before anything is reset, `salvage.py` saves uncommitted work as a commit under
`refs/liza/salvage/`; `salvage_restore.py` restores it. `slot_records.py` reads and writes git's records and the owner
file of a slot. `slots_directory.py` chooses and marks the directory. `slot_damage.py` finds and repairs damaged slots.
`stuck_slots.py`, `leftovers.py` and `relocate.py` repair what killed processes, permissions and moves leave behind.
`slot_setup.py` handles what git does not track in a slot, and records its set-up. `submodules.py` and
`salvage_submodules.py` handle submodules.
Read `pool.py` first, then `slot_records.py` and `salvage.py`.
"""
