"""Files, locks and processes of the operating system. Nothing here knows a board, a task or git.

`untrusted_files.py` opens files that agents may have replaced; `atomic.py` replaces a file in a single step (write,
fsync, rename); `files.py` writes the board's files, and only those; `locks.py` takes locks, and says who holds one;
`processes.py` names a process so that a reused pid is not confused with it, and kills all processes of a run.
`proc_stat.py` reads /proc/<pid>/stat, `ancestors.py` the environments of this process's ancestors, and `peers.py` the
process at the other end of a connection. `http_listener.py` answers HTTP on sockets. `file_growth.py` reads new lines
of a growing file, and waits for them. `program_path.py` finds a program outside the worktrees. `crash_points.py` holds
the points at which tests kill this process. Read `untrusted_files.py` first, then `atomic.py` and `processes.py`.
"""
