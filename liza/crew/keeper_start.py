"""Start the keeper: the process that watches over a crew without a `liza up` in a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from liza.crew.crew import Crew
from liza.model.errors import LizaError, LockTimeout
from liza.programs.session import log_file
from liza.system.locks import is_flock_held, lock_path

_DEAD_UP_LIMIT = 5.0  # seconds to wait for the lock of a killed `up`
LOG_NAME: Final = "keeper.log"
RETRY_SECONDS: Final = 10.0
"""Seconds from one start to the next: a process that ends at once must not be started at each revision."""


def start_keeper(crew: Crew) -> None:
    """Start the keeper. It is told whose supervisors run: one may be killed before the keeper's first look.

    It ends if another process holds the lock. Raises OSError, LizaError.
    """
    agents = [agent for agent in crew.board.read().agents if crew.is_supervised_here(agent)]
    crew.paths.keeper_mark.touch(0o600)
    with log_file.open_for_append(crew.paths.logs / LOG_NAME) as log:
        subprocess.Popen(
            [sys.executable, "-P", "-m", "liza.supervisor.healing", str(crew.paths.root), *agents],
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
        if crew.paths.keeper_mark.exists():
            start_if_absent(crew)


def replace_dead_up(crew: Crew) -> None:
    """Start the keeper for a crew whose `liza up` was killed. Raises LizaError, OSError.

    The kernel closes the pipe of a killed process before its lock: without the wait, the lock is taken for that of a
    living `up`. The mark makes later checks try again.
    """
    mark = crew.paths.keeper_mark
    if not mark.exists():
        mark.touch(0o600)
        os.utime(mark, (0, 0))
    with suppress(LockTimeout), lock_path(crew.paths.keeper_lock, timeout=_DEAD_UP_LIMIT):
        pass
    start_if_absent(crew)


def start_if_absent(crew: Crew) -> None:
    """Start the keeper unless it runs, has just been started, or `liza down` stops the crew. Raises LizaError,
    OSError."""
    mark = crew.paths.keeper_mark
    started = mark.stat().st_mtime if mark.exists() else 0.0
    if 0 <= time.time() - started < RETRY_SECONDS or is_flock_held(crew.paths.keeper_lock):
        return
    if not is_flock_held(crew.paths.down_lock):
        start_keeper(crew)
