"""Confinement by the kernel: an agent, a test and a set-up can write their worktree, and nothing else of the person.

- `box.py`: the command line of a box.
- `support.py`: whether this machine can make a box, or why not. Only these two know bubblewrap.
- `surroundings.py`: what the mounts depend on: installations, secrets of the person, files below /run.
- `terminal_filter.py`: keeps a program in the box of a person from typing into their terminal.
- `slot_directories.py`: create and remove what the boxes of a slot have for themselves.
- `box_environment.py`: variables and caches in a box, and what a person shares with all boxes.
- `run_mounts.py`: what a session, a project command and a git command see in their box.
Read `run_mounts.py` first.
"""
