"""Reach the remote repository: branches through git, pull requests through the forge's own program.

`remote_branches.py` reads and pushes branches. `forge_program.py` runs `gh` or `glab`. Every call has a time limit, no
terminal and no prompt, and is killed together with its children. `github_feedback.py` and
`gitlab_feedback.py` read checks and comments.
Read `pull_requests.py` first.
"""
