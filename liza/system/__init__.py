"""Files, locks and processes of the operating system. Nothing here knows a board, a task or git.

`files.py` writes the board's files with fsync; `atomic.py` replaces one file in a single step (write, fsync, rename);
`file_lock.py` locks a file with flock(2); `processes.py` names a process so that a reused pid is not confused with it,
and kills all processes of a run. `crash_points.py` holds the points at which tests kill this process.
Read `files.py` first, then `processes.py`.
"""
