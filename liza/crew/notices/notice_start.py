"""Start the process that sends the alarms of a crew that `liza up -d` started, also after it was killed."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from liza.crew.crew import Crew
from liza.programs.session import log_file
from liza.rules.errors import LizaError
from liza.rules.model import State
from liza.rules.paths import Paths
from liza.system.flock import is_flock_held

LOG_NAME: Final = "notices.log"
RETRY_SECONDS: Final = 10.0
"""Seconds from one start to the next: a process that ends at once must not be started at each revision."""


def process_lock(paths: Paths) -> Path:
    """Path of the lock that the process holds."""
    return paths.notices / "process.lock"


def process_mark(paths: Paths) -> Path:
    """Path of the file that exists from the start of the process to its orderly end; its time is that of the start."""
    return paths.notices / "process.started"


def start_process(crew: Crew) -> None:
    """Start the process. Raises OSError, LizaError."""
    with log_file.open_for_append(crew.paths.logs / LOG_NAME) as log:
        subprocess.Popen(
            [sys.executable, "-P", "-m", "liza.up.notice_process", str(crew.paths.root)],
            # Not in the repository: agents can write modules there.
            cwd=Path("/"),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def restart_if_killed(crew: Crew, state: State) -> None:
    """Start the process again if it was killed. Nothing else would say that the alarms are not sent any more.

    One supervisor at a time calls this. Without a mark it costs one stat(2).
    """
    mark = process_mark(crew.paths)
    # A start that fails is tried again at a later check; the alarms are in `liza status` all the same.
    with suppress(LizaError, OSError):
        if not mark.exists() or not state.config.notify.is_wanted:
            return
        if 0 <= time.time() - mark.stat().st_mtime < RETRY_SECONDS or is_flock_held(process_lock(crew.paths)):
            return
        if not is_flock_held(crew.paths.down_lock):
            mark.touch(0o600)
            start_process(crew)
