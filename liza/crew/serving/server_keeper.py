"""Keep the server of the worker API running while this supervisor runs.

Each supervisor that `liza up` started has a thread that waits for the server's lock: the kernel releases it when the
server dies, however it dies. One of the supervisors then starts it again. No work waits for that.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from liza.crew.crew import Crew
from liza.crew.serving import api_server
from liza.rules.errors import LizaError
from liza.rules.sessions.server_restarts import LONG_LIFE, restart_delay
from liza.system import untrusted_files
from liza.system.file_lock import Lock
from liza.system.flock import is_flock_held

START_LIMIT: Final = 20.0
"""Seconds for a started server to take its lock."""
LOOK_SECONDS: Final = 0.5
"""Seconds between two looks at a server that another supervisor starts."""


class ServerKeeper(threading.Thread):
    """The thread of one supervisor. ``close`` ends it, not the server, which ends when no supervisor runs."""

    def __init__(self, crew: Crew, notify: Callable[[str], None]) -> None:
        super().__init__(name="server-keeper", daemon=True)
        self._crew, self._notify = crew, notify
        self._closed = threading.Event()
        self._said = ""

    def close(self) -> None:
        self._closed.set()

    def run(self) -> None:
        if api_server.missing_packages():
            return  # `liza up` has said so
        failures, delay = 0, 0.0
        while not self._closed.wait(delay):
            started = self._crew.clock.monotonic()
            if self._ensure_served():
                self._wait_for_end()
                failures = failures + 1 if self._crew.clock.monotonic() - started < LONG_LIFE else 0
                delay = restart_delay(failures)
            else:
                delay = LOOK_SECONDS

    def _ensure_served(self) -> bool:
        """Start the server unless it runs. Return False while another supervisor starts it, or `down` ends it."""
        lock = Lock(self._crew.paths.server_start_lock)
        try:
            if api_server.is_serving(self._crew):
                return True
            if is_flock_held(self._crew.paths.down_lock) or not lock.try_acquire():
                return False
            if not self._closed.is_set() and not api_server.is_serving(self._crew):
                self._wait_for_start(api_server.start(self._crew))
        except (LizaError, OSError) as error:
            self._say(f"! the worker API cannot be served: {error}")
        finally:
            lock.release()
        return True

    def _wait_for_start(self, child: subprocess.Popen[bytes]) -> None:
        end = self._crew.clock.monotonic() + START_LIMIT
        while self._crew.clock.monotonic() < end and not api_server.is_serving(self._crew):
            with suppress(subprocess.TimeoutExpired):
                child.wait(timeout=0.05)
                self._say(f"! the worker API ended at once: {api_server.read_last_error(self._crew)}")
                return
        threading.Thread(target=child.wait, name="server-wait", daemon=True).start()

    def _wait_for_end(self) -> None:
        """Wait until no process holds the server's lock."""
        with suppress(OSError, LizaError):
            descriptor = untrusted_files.open_regular(self._crew.paths.server_lock)
            try:
                # Shared: all supervisors wait at the same time, and get it at the same time.
                fcntl.flock(descriptor, fcntl.LOCK_SH)
            finally:
                os.close(descriptor)

    def _say(self, text: str) -> None:
        """Print a line, unless it was the last one."""
        if text != self._said and not self._closed.is_set():
            self._said = text
            self._notify(text)
