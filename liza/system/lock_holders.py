"""Find the processes that hold flock(2) on a file, in either mode."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from liza.system import proc_stat, processes
from liza.system.file_lock import last_holder_pid

_PROC = Path("/proc")


def find_holders(path: Path) -> tuple[int, ...]:
    """Return the pids of the processes that hold the lock; none without /proc, or if they cannot be seen.

    The kernel names the process that took the lock. If that one has closed the file, the processes that inherited it
    hold the lock. Of a living process these are its descendants: a supervisor closes the turn of its merger. Only if
    it has ended, all processes are searched.
    """
    return _find_by_mode(path, proc_stat.ANY_MODE)


def _find_by_mode(path: Path, modes: frozenset[str]) -> tuple[int, ...]:
    try:
        wanted, table = path.stat(), (_PROC / "locks").read_text()
    except OSError:
        return ()
    rows = [line.split() for line in table.splitlines()]
    rows = [row for row in rows if len(row) > 5 and row[1] == "FLOCK" and row[3] in modes]
    takers = {int(row[4]) for row in rows if row[5].endswith(f":{wanted.st_ino}")}
    holders = tuple(pid for pid in sorted(takers) if proc_stat.holds_flock(pid, wanted, modes))
    if holders:
        return holders
    return tuple(pid for pid in sorted(_find_heirs(takers)) if proc_stat.holds_flock(pid, wanted, modes))


def find_holder(path: Path) -> int | None:
    """Return the process that holds the exclusive lock, by the kernel's list: agents can write in the lock file.

    The caller may send it a signal. So it is never a process that only checks whether the lock is free, which holds it
    in shared mode for a moment, and never this one: a thread of it may still wait for the lock. Without /proc the file
    is believed, if the process is not init. None if it is not known.
    """
    if processes.has_proc():
        pids = _find_by_mode(path, frozenset({"WRITE"}))
        return next((pid for pid in pids if pid != os.getpid()), None)
    pid = last_holder_pid(path)
    return pid if pid is not None and pid > 1 and pid != os.getpid() else None


def read_command(pid: int) -> tuple[str, ...]:
    """Return the command line of a process; empty if it has ended."""
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return ()
    return tuple(os.fsdecode(word) for word in words if word)


def read_directory(pid: int) -> Path | None:
    """Return the working directory of a process; None if it has ended or belongs to another user."""
    try:
        return (_PROC / str(pid) / "cwd").readlink()
    except OSError:
        return None


def read_program(pid: int) -> str | None:
    """Return the path of the program file of a process; None if it has ended or belongs to another user.

    The path of a file that was removed meanwhile ends in ``(deleted)``.
    """
    try:
        return os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115 - called for each process of the machine
    except OSError:
        return None


def _find_heirs(takers: set[int]) -> set[int]:
    """Return the pids that may have inherited a lock from processes that have closed its file."""
    heirs = set[int]()
    for pid in takers:
        taker = processes.identify_process(pid)
        heirs.update(_iter_pids() if taker is None else processes.find_descendants(taker))
    return heirs


def _iter_pids() -> Iterator[int]:
    yield from (int(path.name) for path in _PROC.iterdir() if path.name.isdecimal())
