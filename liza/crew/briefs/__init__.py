"""Briefs in the files of a worktree, hidden from git.

`block_files.py` places a block and hides it, for slots and checkouts; `checkout_brief.py` is the context of a program
that a person starts in their own checkout, with its removal after a crash. Read `block_files.py` first.
"""
