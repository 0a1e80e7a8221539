"""Reach the remote repository: branches through git, pull requests through the forge's own program.

`accepted_origin.py` finds the remote, at the address that a person has accepted. `remote_branches.py` reads and pushes
branches. `forge_program.py` runs `gh` or `glab`. Every call has a time limit, no terminal and no prompt, and is killed
together with its children. `github_feedback.py` and `gitlab_feedback.py` read checks and comments. `branch_backup.py`
pushes the branches of tasks, `branch_pusher.py` starts that as a child of a supervisor, and `backup_record.py` is what
all supervisors know of its failures.
Read `pull_requests.py` first.
"""
