"""The environments of the processes that this one descends from: what they were born with, and cannot take back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")
SHIM_PREFIX = "LIZA_SHIM_"
"""A shim bears its run under names of its own, for what bears it under the usual ones is ended with the run."""


def environs() -> Iterator[dict[str, str]]:
    """The environment at birth of each ancestor that may be read, nearest first. Nothing where there is no /proc."""
    pid = os.getppid()
    while pid > 1:
        try:
            block = (PROC / str(pid) / "environ").read_bytes()
            parent = _parent(pid)
        except OSError:
            # Gone meanwhile, or another user's: whatever started that one is not of a session of ours.
            return
        pairs = (pair.partition("=") for pair in block.decode(errors="replace").split("\0") if "=" in pair)
        yield {name.replace(SHIM_PREFIX, "LIZA_", 1): value for name, _, value in pairs}
        pid = parent


def outermost_run(root: Path) -> str | None:
    """The run of the crew at ``root`` whose session this process descends from, as whoever started that session named
    it: a session can give what it starts any environment, but not itself. None outside of all, or where none can be
    seen."""
    found = None
    for environ in environs():
        if environ.get("LIZA_RUN") and environ.get("LIZA_ROOT") == str(root):
            found = environ["LIZA_RUN"]
    return found


def _parent(pid: int) -> int:
    """The parent's pid. The name in the second field may hold spaces and brackets, so fields count from its end."""
    return int((PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[1])
