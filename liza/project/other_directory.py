"""Another directory for the worktrees, for a hint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from liza.git import slots_directory
from liza.model.errors import Refused


def suggest_directory(root: Path, environ: Mapping[str, str]) -> Path | None:
    """Return a directory that `liza init --worktrees` accepts, and above which Node finds no modules; None without one.

    Creates nothing. Raises OSError.
    """
    for directory in (
        *slots_directory.propose_directories(root, environ),
        Path("/var/tmp") / f"{root.name}.worktrees",
    ):
        if any((above / "node_modules").is_dir() for above in directory.parents):
            continue
        try:
            return slots_directory.choose_directory(root, directory, environ).directory
        except Refused:
            continue
    return None
