"""A bell: what is no change of the board, and may yet be what a neighbour waits for (a session over, an agent gone)."""

from __future__ import annotations

import os
from pathlib import Path

from liza.rules.paths import Paths


def wake_directory(paths: Paths) -> Path:
    """The directory to watch."""
    return paths.liza / "bell"


def wake_watchers(paths: Paths, agent: str) -> None:
    """Wake everyone who watches. Raises OSError, also if there is no ``.liza``: it may have been moved away."""
    wake_directory(paths).mkdir(exist_ok=True)
    path = wake_directory(paths) / agent
    path.touch()
    os.utime(path)


def last_wake(paths: Paths, agent: str) -> int | None:
    """When an agent rang last, for comparing; None where it never did. Raises OSError."""
    try:
        return (wake_directory(paths) / agent).stat().st_mtime_ns
    except FileNotFoundError:
        return None
