"""Confinement by the kernel: an agent, a test and a set-up can write their worktree, and nothing else of the person.

- `box.py`: the command line of a box, and whether this machine can make one; the only module that knows bubblewrap.
- `run_mounts.py`: what a session, a project command and a git command see in their box.
Read `run_mounts.py` first.
"""
