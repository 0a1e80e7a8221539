"""Bring integration to a remote repository: what is pushed, and the text of the pull request. Pure.

`remote_urls.py` reads the URL of a remote and chooses the program that opens pull requests there. `request_text.py`
builds the text of a pull request, `issue_text.py` the document of a task that comes from an issue.
`request_feedback.py` decides which red checks and comments of a pull request become tasks, `feedback_text.py` builds
those tasks, and `poll_rules.py` says when `up` reads the pull request.
Read `push_rules.py` first.
"""
