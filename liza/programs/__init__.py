"""Agent programs: how one is described, briefed, started, watched, sent messages, and measured.

Sub-packages: `presets/` (a row of data per program), `brief/` (what a session reads first), `session/` (its process and
the files of its run), `terminal/` (tmux), `messages/`, `hooks/` (callbacks inside it), `events/` (its
output as events), `usage/` (tokens, cost).
The package knows no board and no git. Read `presets/preset.py` first, then `session/session_process.py`.
"""
