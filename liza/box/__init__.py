"""Confinement by the kernel: an agent, a test and a set-up can write their worktree, and nothing else of the person.

- `box.py`: the command line of a box, and the filter of system calls of a box in a person's terminal.
- `support.py`: whether this machine can make a box, or why not. Only these two know bubblewrap.
- `surroundings.py`: what the mounts depend on: installations, secrets of the person, files below /run.
- `slot_directories.py`: what the boxes of a slot have for themselves, with variables and caches; what a person shares.
- `run_mounts.py`: what a session, a project command and a git command see in their box.
Read `run_mounts.py` first.
"""
