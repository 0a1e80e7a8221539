"""Fields of ``/proc/<pid>/stat``. Hooks load this module, so it imports nothing that is slow to load."""

from __future__ import annotations

STATE, PARENT, GROUP, TERMINAL_GROUP, USER_TICKS, SYSTEM_TICKS, START_TIME = 0, 1, 2, 5, 11, 12, 19
"""Indices of fields of ``read_stat``: state, pid of the parent, process group, foreground group of its terminal, CPU
time in clock ticks, ticks from boot to start."""


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
