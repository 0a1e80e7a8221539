"""Read the environments that the ancestors of this process were started with. A process cannot change its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from liza.system import proc_stat

SHIM_PREFIX = "LIZA_SHIM_"
"""A shim has its run in variables with this prefix: processes with the usual names are killed when the run ends."""
PROJECT_COMMAND_RUN = "merge"
"""Value of ``LIZA_RUN`` for the project's own commands: tests, and the set-up of a merge."""
# PROC_PID_INIT_INO of the kernel's linux/proc_ns.h: the namespace that sees the processes of all others.
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"


def ancestor_environments() -> Iterator[dict[str, str]]:
    """Yield the start environment of each readable ancestor, nearest first. Yields nothing without /proc."""
    yield from _environments_from(_parent_pid("self"))


def process_environments(pid: int) -> Iterator[dict[str, str]]:
    """Yield the start environments of another process and of its ancestors, as ``ancestor_environments`` does."""
    yield from _environments_from(pid)


def _environments_from(pid: int | None) -> Iterator[dict[str, str]]:
    while pid is not None and pid > 0:
        with suppress(OSError):
            # The environment of another user's process (sudo, for example) is not readable, but its parent's may be.
            with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - pathlib is slow to import
                block = file.read()
            pairs = (pair.partition("=") for pair in block.decode(errors="replace").split("\0") if "=" in pair)
            yield {name.replace(SHIM_PREFIX, "LIZA_", 1): value for name, _, value in pairs}
        pid = _parent_pid(pid)


def find_outermost_run(root: Path | str) -> str | None:
    """Return the run of the crew at ``root`` whose session this process descends from.

    The outermost ancestor counts: a session can give its children any environment, but cannot change its own.
    Return None outside of every session, or if no ancestor can be read.
    """
    run = None
    for environ in ancestor_environments():
        if environ.get("LIZA_RUN") and environ.get("LIZA_ROOT") == str(root):
            run = environ["LIZA_RUN"]
    return run


def is_in_initial_pid_namespace() -> bool:
    """Return whether no pid namespace hides processes of this machine. Also True on systems without namespaces."""
    try:
        return os.readlink("/proc/self/ns/pid") == _INITIAL_PID_NAMESPACE  # noqa: PTH115 - "pid:[7]" is no path
    except OSError:
        return True


def is_holder_visible(lock: Path) -> bool:
    """Return whether the holder of a held lock is in the pid namespace of this process, or below it.

    /proc/locks does not list other holders, so the content of the lock file is not used. True if it cannot be read.
    """
    try:
        with open("/proc/locks") as file:  # noqa: PTH123 - pathlib is slow to import
            number, table = lock.stat().st_ino, file.read()
    except OSError:
        return True
    rows = (line.split() for line in table.splitlines())
    return any(len(row) > 5 and row[1] == "FLOCK" and row[5].endswith(f":{number}") for row in rows)


def _parent_pid(pid: int | str) -> int | None:
    """Return the parent's pid in the mounted /proc; 0 if the parent is in a namespace above, None if there is no
    such process."""
    try:
        fields = proc_stat.read_stat(pid)
    except OSError:
        return None
    return None if fields is None else int(fields[proc_stat.PARENT])
