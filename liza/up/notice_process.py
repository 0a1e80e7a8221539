"""The process that sends the alarms of a crew that `liza up -d` started: ``python -m liza.up.notice_process ROOT``.

It ends when no supervisor of the crew runs. A crew has one: a second one ends at once. If it is
killed, a supervisor starts it again.
"""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

from liza.crew.crew import Crew, find_crew
from liza.crew.notices.notice_start import process_lock, process_mark
from liza.rules.errors import LizaError
from liza.system import atomic
from liza.system.flock import try_lock_path
from liza.up.crew_notices import CrewNotices

LOOK_SECONDS = 2.0
"""Seconds between two looks at the supervisors."""
LOOKS_TO_END = 3
"""Number of looks in a row without a supervisor after which the process ends: one may be started again meanwhile."""


def main(root: Path) -> int:
    """Send alarms until no supervisor runs, or SIGTERM; return the exit status."""
    crew, stopping = find_crew(root), threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.set())
    atomic.make_directory(crew.paths.root, crew.paths.notices)
    with try_lock_path(process_lock(crew.paths), 0o600) as is_locked:
        if is_locked:
            process_mark(crew.paths).touch(0o600)
            notices = CrewNotices(crew, lambda agent, text: None)
            notices.start()
            _wait_for_end(crew, stopping)
            notices.stop()
            # Not after an exception: then a supervisor starts it again, as after a kill.
            process_mark(crew.paths).unlink(missing_ok=True)
    return 0


def _wait_for_end(crew: Crew, stopping: threading.Event) -> None:
    looks = 0
    while looks < LOOKS_TO_END and not stopping.wait(LOOK_SECONDS):
        looks = 0 if _is_supervised(crew) else looks + 1


def _is_supervised(crew: Crew) -> bool:
    with suppress(LizaError, OSError):
        return any(crew.is_supervised(agent) for agent in crew.board.read().agents)
    return False


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
