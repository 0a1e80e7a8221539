"""The environments of the processes that this one descends from: what they were born with, and cannot take back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
SHIM_PREFIX = "LIZA_SHIM_"
"""A shim bears its run under names of its own, for what bears it under the usual ones is ended with the run."""
PROJECT_COMMAND_RUN = "merge"
"""The run that stands in the environment of the project's own commands: tests, and the set-up of a merge."""
_INITIAL_PID_NAMESPACE = (
    "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel's linux/proc_ns.h: the namespace that sees all others
)


def ancestor_environments() -> Iterator[dict[str, str]]:
    """The environment at birth of each ancestor that may be read, nearest first. Nothing where there is no /proc."""
    pid = _parent_pid("self")
    while pid is not None and pid > 0:
        with suppress(OSError):
            # Another user's (sudo, for example) is not shown; whoever started that one may be of a session of ours.
            block = (PROC / str(pid) / "environ").read_bytes()
            pairs = (pair.partition("=") for pair in block.decode(errors="replace").split("\0") if "=" in pair)
            yield {name.replace(SHIM_PREFIX, "LIZA_", 1): value for name, _, value in pairs}
        pid = _parent_pid(pid)


def find_outermost_run(root: Path) -> str | None:
    """The run of the crew at ``root`` whose session this process descends from, as whoever started that session named
    it: a session can give what it starts any environment, but not itself. None outside of all, or where none can be
    seen."""
    found = None
    for environ in ancestor_environments():
        if environ.get("LIZA_RUN") and environ.get("LIZA_ROOT") == str(root):
            found = environ["LIZA_RUN"]
    return found


def is_in_initial_pid_namespace() -> bool:
    """Whether no process of this machine is hidden by a pid namespace. True as well where the system has none."""
    try:
        return os.readlink(PROC / "self" / "ns" / "pid") == _INITIAL_PID_NAMESPACE  # noqa: PTH115 - "pid:[7]" is no path
    except OSError:
        return True


def is_holder_visible(lock: Path) -> bool:
    """Whether the process that took a lock, which is held, is in the pid namespace of this one, or below it.

    The kernel's table of locks leaves out the others, whatever they wrote into the file.
    """
    try:
        number, table = lock.stat().st_ino, (PROC / "locks").read_text()
    except OSError:
        return True
    rows = (line.split() for line in table.splitlines())
    return any(len(row) > 5 and row[1] == "FLOCK" and row[5].endswith(f":{number}") for row in rows)


def _parent_pid(pid: int | str) -> int | None:
    """The parent's pid as the mounted /proc counts; 0 where it is in a namespace above, None where there is no such
    process. The name in the second field may hold spaces and brackets, so fields count from its end."""
    try:
        return int((PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None
