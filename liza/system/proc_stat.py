"""What ``/proc/<pid>`` says of a process: the fields of ``stat``, and its open files.

Hooks load this module, so it imports nothing that is slow to load.

A forked process may show the command line and the environment of the command that it runs, not of its parent. Both are
read from the memory of the process, where execve(2) wrote them: `ps` reads them, and so does a search for the processes
of a run. What does not fit there is cut. Nothing happens without ``/proc``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

STATE, PARENT, GROUP, TERMINAL_GROUP, USER_TICKS, SYSTEM_TICKS, START_TIME = 0, 1, 2, 5, 11, 12, 19
"""Indices of fields of ``read_stat``: state, pid of the parent, process group, foreground group of its terminal, CPU
time in clock ticks, ticks from boot to start."""
ARGUMENTS, ENVIRONMENT = slice(45, 47), slice(47, 49)
"""Indices of the first and the last address of the command line, and of the start environment."""
ALL_TICKS = range(USER_TICKS, SYSTEM_TICKS + 3)
"""Indices of the CPU times: its own, and those of its children that have ended and were waited for."""


def read_stat(pid: int | str) -> list[bytes] | None:
    """Return the fields of ``/proc/<pid>/stat`` from the third on, the state; None if there is no such process, or
    ``/proc`` hides it.

    They are split after the command name, which may contain blanks and brackets. ``pid`` may be ``self``, or
    ``PID/task/THREAD`` for one thread. Raises OSError.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib is slow to import
            return file.read().rpartition(b") ")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def is_ended(fields: list[bytes]) -> bool:
    """Return whether these fields of ``read_stat`` are those of a zombie, or of a process that has just ended."""
    return fields[0] in (b"Z", b"X")


ANY_MODE = frozenset({"READ", "WRITE"})
"""The modes of a lock in ``/proc``: shared, exclusive."""


def holds_flock(pid: int, wanted: os.stat_result, modes: frozenset[str]) -> bool | None:
    """Return whether a process has the file open through a descriptor that holds flock(2) on it, in one of the modes
    READ and WRITE; None if that is hidden, or there is no such process.

    A process that has only opened the file does not hold its lock. /proc/locks has inode numbers, and another file
    system can have a file with the same one. Its device numbers are no help: on some file systems they differ from
    those of stat(2).
    """
    directory = f"/proc/{pid}"
    try:
        names = os.listdir(f"{directory}/fd")  # noqa: PTH208 - pathlib is slow to import
    except OSError:
        return None
    for name in names:
        try:
            if not os.path.samestat(os.stat(f"{directory}/fd/{name}"), wanted):  # noqa: PTH116
                continue
            with open(f"{directory}/fdinfo/{name}") as file:  # noqa: PTH123
                rows = [line.split() for line in file if line.startswith("lock:")]
        except OSError:
            continue  # it was closed meanwhile
        # lock: 1: FLOCK ADVISORY WRITE 4711 fe:00:2408450 0 EOF
        if any(len(row) > 4 and row[2] == "FLOCK" and row[4] in modes for row in rows):
            return True
    return False


def show_command(words: Sequence[str]) -> None:
    """Show ``words`` as the command line."""
    _overwrite(ARGUMENTS, words)


def show_environment(environ: Mapping[str, str]) -> None:
    """Show this environment, the variables of Liza first. Call it after the start environment was replaced: C functions
    have pointers into its memory."""
    names = sorted(environ, key=lambda name: not name.lstrip("_").startswith("LIZA_"))
    _overwrite(ENVIRONMENT, [f"{name}={environ[name]}" for name in names])


def _overwrite(addresses: slice, texts: Iterable[str]) -> None:
    """Write NUL-terminated texts between two addresses, as many as fit, and NUL bytes behind them."""
    with suppress(OSError, ValueError):
        start, end = map(int, (read_stat("self") or [])[addresses])
        block = b"".join(os.fsencode(text) + b"\0" for text in texts)[: end - start]
        block = block[: block.rfind(b"\0") + 1]
        with open("/proc/self/mem", "r+b", buffering=0) as memory:  # noqa: PTH123 - no buffer
            memory.seek(start)
            memory.write(block.ljust(end - start, b"\0"))
