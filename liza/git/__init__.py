"""git: the only package that runs it.

Read `runner.py` first. `Git` runs git with hooks, prompts and signing switched off, in a process group with a timeout.

- Worktrees of the agents: `worktrees.py` prepares a slot for a claim, finishes, releases, and repairs it.
  `worktree_creation.py` creates, finds and opens slots, `slot_emptying.py` empties them. `slot_records.py` reads git's
  records and the owner file of a slot. `slots_directory.py` chooses the directory. `slot_setup.py` handles what git
  does not track. `reset.py` empties a worktree and its submodules.
- Saved work: `salvage.py` saves what is uncommitted before a reset, and restores it.
- Merges: `candidates.py` builds them; `branch_moves.py` moves a branch, `checkout_moves.py` and
  `checkout_files.py` its checkout; `git_refs.py`, `integration_tip.py`.
- Boxes: `run_git.py` makes the git directory that a box sees, `run_import.py` imports what a run committed there,
  `boxed_git.py` runs git in a box.
- `hiding.py` keeps the brief and files of the set-up out of git. `filter_program.py` is its clean filter.
- What killed processes leave: `leftovers.py`.
"""
