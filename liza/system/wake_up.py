"""Wake the other supervisors after an event that does not change the board: a session ended, an agent is gone.

Each agent touches its own file in a directory that all supervisors watch.
"""

from __future__ import annotations

import os
from pathlib import Path

from liza.model.paths import Paths


def wake_directory(paths: Paths) -> Path:
    """Return the directory to watch."""
    return paths.liza / "bell"


def wake_watchers(paths: Paths, agent: str) -> None:
    """Touch the file of ``agent``, which wakes all watchers.

    Raises OSError, also if ``.liza`` does not exist: the repository may have been moved, so it is not created.
    """
    wake_directory(paths).mkdir(exist_ok=True)
    path = wake_directory(paths) / agent
    path.touch()
    os.utime(path)


def last_wake(paths: Paths, agent: str) -> int | None:
    """Return the mtime in nanoseconds of the last wake-up by ``agent``; None if there was none. Raises OSError."""
    try:
        return (wake_directory(paths) / agent).stat().st_mtime_ns
    except FileNotFoundError:
        return None
