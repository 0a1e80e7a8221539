"""What agent programs print, as events of `rules/sessions/session_events.py`: one small reader for each format.

Formats change without notice, and no library reads all of them. Read `event_readers.py`.
"""
