"""Land the integration branch: push, pull requests through the forge's own program, checks and comments.

`remotes.py` finds the remote, at the address that a person has accepted. Every call has a time limit, no
terminal and no prompt, and is killed together with its children.
Read `land.py` first, then `pull_requests.py`.
"""
