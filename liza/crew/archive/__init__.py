"""Archived tasks: look them up, move closed tasks to the archive, and keep the archive in the history.

Read `archived_tasks.py` first, then `archive_moves.py`.
"""
