"""Agent programs: how one is described, started, watched and ended, and what it writes.

`liveness.py` says who is alive. Sub-packages: `presets/` (a row of data per program), `session/` (its process and the
files of its run), `terminal/` (tmux), `hooks/` (callbacks inside it). The readers of what programs write are
`event_readers.py`, `conversation_log.py` and `reported_figures.py`.
The package knows no board and no git. Read `presets/preset.py` first, then `session/session_process.py`.
"""
