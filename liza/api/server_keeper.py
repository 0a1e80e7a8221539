"""Keep the server of the worker API running while this supervisor runs.

Each supervisor that `liza up` started has a thread that waits for the server's lock: the kernel releases it when the
server dies, however it dies. One of the supervisors then starts it again. No work waits for that.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from liza.api import api_server, server_failure, server_start
from liza.crew.crew import Crew
from liza.model.errors import LizaError
from liza.model.rests import LONG_LIFE, MAX_DELAY, restart_delay
from liza.system import untrusted_files
from liza.system.locks import Lock, is_flock_held

LOOK_SECONDS: Final = 0.5
"""Seconds between two looks at a server that another supervisor starts."""


class ServerKeeper(threading.Thread):
    """The thread of one supervisor. ``close`` ends it, not the server, which ends when no supervisor runs."""

    def __init__(self, crew: Crew, notify: Callable[[str], None]) -> None:
        super().__init__(name="server-keeper", daemon=True)
        self._crew, self._notify = crew, notify
        self._closed = threading.Event()
        self._failures = 0

    def close(self) -> None:
        self._closed.set()

    def run(self) -> None:
        if api_server.missing_packages():
            return  # `liza up` has said so
        delay = 0.0
        while not self._closed.wait(delay):
            delay = self._keep()

    def _keep(self) -> float:
        """Start the server unless it runs, and wait for its end. Return the seconds until the next call."""
        delay = self._ensure_served()
        if delay:
            return delay
        started = self._crew.clock.monotonic()
        self._wait_for_end()
        is_short = self._crew.clock.monotonic() - started < LONG_LIFE
        self._failures = self._failures + 1 if is_short else 0
        return restart_delay(self._failures)

    def _ensure_served(self) -> float:
        """Start the server unless it runs. Return the seconds until the next try; 0 if it runs.

        Another supervisor may start it now, `down` may end it, or the last start has failed.
        """
        lock = Lock(self._crew.paths.server_start_lock)
        try:
            if api_server.is_serving(self._crew):
                return 0.0
            if is_flock_held(self._crew.paths.down_lock) or not lock.try_acquire():
                return LOOK_SECONDS
            rest = server_failure.seconds_to_retry(self._crew)
            if rest > 0 or self._closed.is_set() or api_server.is_serving(self._crew):
                return rest
            reason = server_start.start_and_record(self._crew)
            if reason is not None and not self._closed.is_set():
                self._notify(f"! the worker API cannot be served, work continues: {reason}")
            return server_failure.seconds_to_retry(self._crew)
        except (LizaError, OSError):
            # Such as a directory that was deleted: the supervisor itself reports it.
            return MAX_DELAY
        finally:
            lock.release()

    def _wait_for_end(self) -> None:
        """Wait until no process holds the server's lock."""
        with suppress(OSError, LizaError):
            descriptor = untrusted_files.open_regular(self._crew.paths.server_lock)
            try:
                # Shared: all supervisors wait at the same time, and get it at the same time.
                fcntl.flock(descriptor, fcntl.LOCK_SH)
            finally:
                os.close(descriptor)
