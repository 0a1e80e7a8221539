"""Files, locks and processes of the operating system. Nothing here knows a board, a task or git.

`files.py` writes the board's files with fsync; `atomic.py` replaces one file in a single step (write, fsync, rename);
`flock.py` takes flock(2) locks with a timeout, and `file_lock.py` has the lock that names its holder; `processes.py`
names a process so that a reused pid is not confused with it, and kills all processes of a run. `crash_points.py` holds
the points at which tests kill this process.
Read `files.py` first, then `processes.py`.
"""
