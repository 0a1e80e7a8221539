"""Read the environments that this process and its ancestors were started with.

A process cannot change its own by accident: only `proc_stat.py` writes over it.

A variable tells whether a process in the box of a session called this command, which runs outside.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from liza.system import proc_stat

SHIM_PREFIX = "LIZA_SHIM_"
"""A shim has its run in variables with this prefix: processes with the usual names are killed when the run ends."""
PROJECT_COMMAND_RUN = "merge"
"""Value of ``LIZA_RUN`` for the project's own commands: tests, and the set-up of a merge."""


_CALLER_PREFIX = "_LIZA_CALLER_"
"""Variables of the processes that a command of the command server starts: each has the outermost run of the caller in a
crew, a blank, and the crew's root.

Their names do not begin with LIZA_: some programs are started without those.
"""
_callers_environments: list[dict[str, str]] | None = None  # in a process that acts for another


def act_for_process(pid: int) -> None:
    """Let another process be the caller of this one, and of the processes that it starts, instead of its own parent.

    The environments of that process and of its ancestors are read at once. The caller makes sure that it lives
    afterwards. Raises OSError if its environment cannot be read.
    """
    global _callers_environments
    _callers_environments = [*_read_environments(pid), *process_environments(_parent_pid(pid) or 0)]
    for name in [name for name in os.environ if name.startswith(_CALLER_PREFIX)]:
        del os.environ[name]  # the client sent it
    for number, root in enumerate({environ.get("LIZA_ROOT") for environ in _callers_environments}):
        if root and (run := find_outermost_run(root)):
            os.environ[f"{_CALLER_PREFIX}{number}"] = f"{run} {root}"


def ancestor_environments() -> Iterator[dict[str, str]]:
    """Yield the start environments of this process and of its readable ancestors, nearest first. Nothing without /proc.

    In a process that acts for another: of that process and of its ancestors.
    """
    yield from process_environments(os.getpid()) if _callers_environments is None else _callers_environments


def process_environments(pid: int) -> Iterator[dict[str, str]]:
    """Yield the start environments of another process and of its ancestors, as ``ancestor_environments`` does."""
    process: int | None = pid
    while process is not None and process > 0:
        with suppress(OSError):
            # The environment of another user's process (sudo, for example) is not readable, but its parent's may be.
            yield from _read_environments(process)
        process = _parent_pid(process)


def _read_environments(pid: int) -> Iterator[dict[str, str]]:
    """Yield the start environment of one process, and what it says of the caller of a command. Raises OSError."""
    with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - pathlib is slow to import
        block = file.read()
    pairs = (pair.partition("=") for pair in os.fsdecode(block).split("\0") if "=" in pair)
    environ = {name.replace(SHIM_PREFIX, "LIZA_", 1): value for name, _, value in pairs}
    yield environ
    for name, value in environ.items():
        if name.startswith(_CALLER_PREFIX):
            run, _, root = value.partition(" ")
            yield {"LIZA_RUN": run, "LIZA_ROOT": root}


def find_outermost_run(root: Path | str, environments: Iterable[Mapping[str, str]] | None = None) -> str | None:
    """Return the run of the crew at ``root`` whose session this process descends from.

    The outermost ancestor counts: a session can give its children any environment, but cannot change its own.
    ``environments`` of another process, nearest first. Return None outside of every session, or if none can be read.
    """
    run = None
    for environ in ancestor_environments() if environments is None else environments:
        if environ.get("LIZA_RUN") and environ.get("LIZA_ROOT") == str(root):
            run = environ["LIZA_RUN"]
    return run


def _parent_pid(pid: int | str) -> int | None:
    """Return the parent's pid in the mounted /proc; 0 if the parent is in a namespace above, None if there is no
    such process."""
    try:
        fields = proc_stat.read_stat(pid)
    except OSError:
        return None
    return None if fields is None else int(fields[proc_stat.PARENT])


CONFINED: Final = "LIZA_CONFINED"
"""Variable of a process in a box, and of a command that was called from one: ``yes``."""
LOOKS: Final = "looks"
"""Value of ``LIZA_CONFINED`` in the box of ``liza confine``: commands run there, and no board of the crew is shown."""


def is_called_from_box() -> bool:
    return os.environ.get(CONFINED) == "yes"


def is_without_board() -> bool:
    """Return whether this process runs in the box of ``liza confine``."""
    return os.environ.get(CONFINED) == LOOKS
