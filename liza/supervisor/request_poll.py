"""Read the open pull request of the crew again and again while `liza up` runs: `liza sync --pr` by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.landing import forge_program, sync_failures
from liza.landing.rules.poll_rules import next_poll_seconds
from liza.landing.sync_request import sync_request
from liza.model.errors import LizaError

IDLE_SECONDS = 60.0
"""Seconds until the board is looked at again while it cannot be read, or while the reading is turned off."""
STOP_LIMIT = 2.0
"""Seconds to wait for the end of a call that was killed."""


class RequestPoll:
    """A thread that makes tasks of red checks and comments. Nothing waits for it; it makes one call at a time.

    Its memory is the number of failures in a row, and the listed comments that were told. The failures are recorded
    for the alarm, too.
    """

    def __init__(self, crew: Crew, say: Callable[[str, str], None]) -> None:
        self._crew, self._say = crew, say
        self._failures = 0
        self._listed: set[str] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pull request", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and the call that it may wait for."""
        self._stopping.set()
        # It looks at the event between two calls of a reading only when that fails: kill until the thread has ended.
        for _ in range(int(STOP_LIMIT / 0.1)):
            forge_program.kill_running()
            self._thread.join(0.1)
            if not self._thread.is_alive():
                return

    def _run(self) -> None:
        pause = 0.0
        while not self._stopping.wait(pause):
            pause = self.poll()

    def poll(self) -> float:
        """Read the pull request if one is open; return the seconds until the next time."""
        try:
            state = self._crew.board.read()
        except (LizaError, OSError):
            # The supervisors report a board that cannot be read.
            return IDLE_SECONDS
        interval, request = state.config.pull_request_interval, state.pull_request
        if not interval or not request.is_open:
            self._failures = 0
            return interval or IDLE_SECONDS
        try:
            # Loaded now: most crews have no pull request.

            self._report(sync_request(self._crew))
            self._failures = 0
        except (LizaError, OSError) as error:
            self._count_failure(request.number, error if isinstance(error, LizaError) else LizaError(str(error)))
        return next_poll_seconds(interval, self._failures)

    def _report(self, result: Result) -> None:
        for line in result.message.splitlines():
            if line.partition(":")[0] in result.details["tasks"]:
                self._say("", line)
        for row in result.details["comments"]:
            if row["id"] not in self._listed:
                self._say("", f"{row['author']} commented without write access: {row['next']}")
                self._listed.add(row["id"])

    def _count_failure(self, number: int, error: LizaError) -> None:
        if self._stopping.is_set():
            return
        if not self._failures:
            self._say("", f"! the pull request was not read: {error.message}; next: {error.hint}")
        self._failures += 1
        # A pull request that was closed is no failure: the board says so now, and it is not read again.
        with suppress(LizaError, OSError):
            if self._crew.board.read().pull_request.is_open:
                sync_failures.record_failure(self._crew.paths, number, error)
