"""The thread that reads the crew: at each change, when another screen is wanted, and when the crew's pulse changes."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from liza.crew.crew import Crew
from liza.model.agent_states import StoppedProcesses
from liza.model.value_classes import Value
from liza.recovery.stopped_processes import find_stopped
from liza.system.clock import boottime
from liza.ui.facts import gather
from liza.ui.rules.snapshot import ScreenName, Snapshot, Wanted, keep_last_good
from liza.view.rules.structs import Picture

PULSE_SECONDS = 4.0
"""Seconds between two pulses: a process that was stopped, and the output of a session, change no board."""
SESSION_SECONDS = 1.0
"""The same while a session is shown."""
READ_SECONDS = 20.0
"""Seconds after which the crew is read in any case: durations go on."""
MIN_SECONDS = 0.2
"""Seconds between two reads: at most five pictures a second."""
REMOTE_SECONDS = 0.5
"""The same over ssh."""


class Pulse(Value):
    """A cheap fingerprint of what changes without a change of the board: processes, and the files of sessions.

    Of two equal ones nothing has to be read again. ``files``: path, time of the last write, size.
    """

    stopped: StoppedProcesses
    supervised: tuple[str, ...]
    files: tuple[tuple[str, int, int], ...]


def take_pulse(crew: Crew, picture: Picture) -> Pulse:
    """Return the fingerprint now, of the agents and sessions of a picture. Raises OSError, LizaError."""
    names = [line.row.id for line in picture.agents]
    runs = [crew.paths.run(line.row.run) for line in picture.agents if line.row.run is not None]
    return Pulse(
        find_stopped(crew.paths, names),
        tuple(name for name in names if crew.is_supervised(name)),
        tuple(_stat_files([*runs, crew.paths.liza])),
    )


def _stat_files(directories: Iterable[os.PathLike[str]]) -> Iterable[tuple[str, int, int]]:
    """Yield the files of directories; those of one that is missing are none."""
    for directory in directories:
        try:
            with os.scandir(directory) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    status = entry.stat(follow_symlinks=False)
                    yield entry.path, status.st_mtime_ns, status.st_size
        except FileNotFoundError:
            continue


class Follower:
    """Posts snapshots to ``post`` from its thread; ``show`` says what is wanted, from any thread.

    A snapshot that is posted again says that it still holds.
    """

    def __init__(self, crew: Crew, post: Callable[[Snapshot], None]) -> None:
        self._crew = crew
        self._post = post
        self._wanted = Wanted()
        self._queue: queue.Queue[Any] = queue.Queue()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)
        self._pause = REMOTE_SECONDS if os.environ.get("SSH_CONNECTION") else MIN_SECONDS
        self._last: Snapshot | None = None
        self._pulse: Pulse | None = None

    def start(self, wanted: Wanted) -> None:
        """Begin to read."""
        self._wanted = wanted
        self._thread.start()

    def show(self, wanted: Wanted) -> None:
        """Read this from now on, and read it now."""
        self._wanted = wanted
        self._queue.put(None)

    def refresh(self) -> None:
        """Read now."""
        self._queue.put(None)

    def stop(self) -> None:
        """End the thread, without waiting for a read that hangs."""
        self._ended.set()
        self._queue.put(None)

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                with self._crew.board.watch() as watch:
                    watch.subscribe(self._queue)
                    while not self._ended.is_set():
                        self._read("reading each second" if watch.is_polling else "")
                        self._rest()
            except Exception:  # noqa: BLE001
                # Whatever fails: without this thread the picture would grow old.
                with suppress(Exception):
                    self._read("changes are not seen: reading every few seconds")
                self._has_request(PULSE_SECONDS)

    def _read(self, feed: str) -> None:
        """Read the crew, and post it."""
        self._pulse = self._take_pulse()
        self._last = keep_last_good(self._last, gather(self._crew, self._wanted, feed))
        if not self._ended.is_set():
            self._post(self._last)

    def _rest(self) -> None:
        """Wait until the crew has to be read again."""
        self._ended.wait(self._pause)
        end = boottime() + READ_SECONDS
        while not self._has_request(SESSION_SECONDS if self._wanted.screen is ScreenName.SESSION else PULSE_SECONDS):
            pulse = self._take_pulse()
            if pulse is None or pulse != self._pulse or boottime() > end or self._last is None:
                return
            self._post(self._last)

    def _take_pulse(self) -> Pulse | None:
        """Return the pulse of the crew that was read last; None if it cannot be taken."""
        if self._last is None or self._last.fault is not None or not isinstance(self._last.picture, Picture):
            return None
        try:
            return take_pulse(self._crew, self._last.picture)
        except Exception:  # noqa: BLE001
            return None

    def _has_request(self, seconds: float) -> bool:
        """Wait for a change or a request; drop those that are queued with it: the next read has them all."""
        try:
            self._queue.get(timeout=seconds)
        except queue.Empty:
            return False
        while not self._queue.empty():
            self._queue.get_nowait()
        return True
