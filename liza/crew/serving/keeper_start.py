"""Start the keeper: the process that watches over a crew without a `liza up` in a terminal."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from liza.crew.crew import Crew
from liza.programs.session import log_file
from liza.rules.errors import LizaError
from liza.rules.paths import Paths
from liza.system.flock import is_flock_held

LOG_NAME: Final = "keeper.log"
RETRY_SECONDS: Final = 10.0
"""Seconds from one start to the next: a process that ends at once must not be started at each revision."""


def keeper_lock(paths: Paths) -> Path:
    """Path of the lock of the process that watches over the crew: a `liza up` in a terminal, or the keeper."""
    return paths.locks / "keeper.lock"


def keeper_mark(paths: Paths) -> Path:
    """Path of the file that exists from the start of the keeper to its orderly end; its time is that of the start."""
    return paths.locks / "keeper.started"


def start_keeper(crew: Crew, agents: Sequence[str] = ()) -> None:
    """Start the keeper. ``agents``: those whose supervisors were just started; it finds the others.

    It ends if another process holds the lock. Raises OSError, LizaError.
    """
    keeper_mark(crew.paths).touch(0o600)
    with log_file.open_for_append(crew.paths.logs / LOG_NAME) as log:
        subprocess.Popen(
            [sys.executable, "-P", "-m", "liza.up.keeper_process", str(crew.paths.root), *agents],
            # Not in the repository: agents can write modules there.
            cwd=Path("/"),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def restart_if_killed(crew: Crew) -> None:
    """Start the keeper again if it was killed. Nothing else would start killed supervisors, or send alarms.

    One supervisor at a time calls this. Without a mark it costs one stat(2).
    """
    # A start that fails is tried again at a later check; the alarms are in `liza status` all the same.
    with suppress(LizaError, OSError):
        if keeper_mark(crew.paths).exists():
            start_if_absent(crew)


def start_if_absent(crew: Crew) -> None:
    """Start the keeper unless it runs, has just been started, or `liza down` stops the crew. Raises LizaError,
    OSError."""
    mark = keeper_mark(crew.paths)
    started = mark.stat().st_mtime if mark.exists() else 0.0
    if 0 <= time.time() - started < RETRY_SECONDS or is_flock_held(keeper_lock(crew.paths)):
        return
    if not is_flock_held(crew.paths.down_lock):
        start_keeper(crew)
