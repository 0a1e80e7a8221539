"""Find the processes that hold flock(2) on a file, in either mode; write and read the line about the holder in it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path, PurePath
from typing import Final

from liza.model.errors import NotRegularFile
from liza.system import proc_stat, processes, untrusted_files

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


_COMMAND_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,30}")
"""A command of liza, or an agent."""
MAX_LINE: Final = 400
"""Bytes of the line in a lock file."""
_HOLDER_LINES: dict[int, bytes] = {}


def own_line() -> bytes:
    """Return the line ``pid start program`` of this process, at most MAX_LINE bytes; built once per pid."""
    pid = os.getpid()
    if pid not in _HOLDER_LINES:
        _HOLDER_LINES.clear()
        _HOLDER_LINES[pid] = f"{pid} {_start_ticks(pid)} {_describe_program(pid)}\n".encode(errors="replace")[:MAX_LINE]
    return _HOLDER_LINES[pid]


def _start_ticks(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot; ``?`` if unknown."""
    try:
        fields = proc_stat.read_stat(pid)
    except OSError:
        fields = None
    return "?" if fields is None else fields[proc_stat.START_TIME].decode()


def _describe_program(pid: int) -> str:
    """Return the name of a process's program, of Liza with its command; ``?`` if unknown.

    Never arguments: they may have secrets.
    """
    try:
        words = [os.fsdecode(word) for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") if word]
    except OSError:
        return "?"
    # Liza runs as: python PATH/liza COMMAND, or python -P -m liza COMMAND.
    options = list(takewhile(lambda word: word.startswith("-"), words[1:]))
    name, *rest = (PurePath(word).name for word in words[len(options) + 1 :] or [""])
    if name.partition(".")[0] not in ("liza", "liza-agent"):
        return PurePath(words[0]).name if words else "?"
    return f"{name} {rest[0]}" if rest and _COMMAND_NAME.fullmatch(rest[0]) else name


def describe_holder(path: Path) -> str:
    """Describe the holder of a lock for a message: from /proc/locks, else from the line in the lock file."""
    try:
        wanted = path.stat()
        table = Path("/proc/locks").read_text()
    except OSError:
        table = ""
    for line in table.splitlines():
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5].endswith(f":{wanted.st_ino}"):
            pid = int(words[4])
            if proc_stat.holds_flock(pid, wanted, proc_stat.ANY_MODE) is False:
                continue
            return f"process {pid} (started at tick {_start_ticks(pid)}) holds it: {_describe_program(pid)}"
    try:
        pid_text, start, program = _read_line(path).split(" ", 2)
    except (OSError, ValueError, NotRegularFile):
        return "its holder is unknown"
    return f"last taken by process {pid_text} (started at tick {start}): {program.strip()}"


def last_holder_pid(path: Path) -> int | None:
    """Return the pid in a lock file, which is that of the last holder; None if the file has no pid.

    Agents can write in the file: do not send a signal to this process. `lock_holders.find_holder` asks the kernel.
    """
    try:
        return int(_read_line(path).split(" ", 1)[0])
    except (OSError, ValueError, NotRegularFile):
        return None


def _read_line(path: Path) -> str:
    """Return the begin of a lock file: an agent can write in it, and make it large. Raises NotRegularFile, OSError."""
    with untrusted_files.open_to_read(path) as file:
        return file.read(MAX_LINE).decode(errors="replace")
