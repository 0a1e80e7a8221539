"""The thread that reads the crew: at each change, when another screen is wanted, and every few seconds."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from liza.board import events
from liza.crew.crew import Crew
from liza.model.errors import LizaError
from liza.ui.facts import gather
from liza.ui.rules.snapshot import Snapshot, Wanted

LOOK_SECONDS = 4.0
"""Seconds after which the crew is read without a change: a process that was stopped makes none."""
MIN_SECONDS = 0.2
"""Seconds between two reads: at most five pictures a second."""


class Follower:
    """Posts snapshots to ``post`` from its thread; ``show`` says what is wanted, from any thread."""

    def __init__(self, crew: Crew, post: Callable[[Snapshot], None]) -> None:
        self._crew = crew
        self._post = post
        self._wanted = Wanted()
        self._queue: queue.Queue[Any] = queue.Queue()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

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
                with events.watch(self._crew.paths) as watch:
                    watch.subscribe(self._queue)
                    self._follow(watch)
            except (LizaError, OSError):
                self._look("changes are not seen: reading every few seconds")
                self._wait(LOOK_SECONDS)

    def _follow(self, watch: events.Watch) -> None:
        while not self._ended.is_set():
            self._look("reading each second" if watch.is_polling else "")
            self._ended.wait(MIN_SECONDS)
            self._wait(LOOK_SECONDS)

    def _look(self, feed: str) -> None:
        snapshot = gather(self._crew, self._wanted, feed)
        if not self._ended.is_set():
            self._post(snapshot)

    def _wait(self, seconds: float) -> None:
        """Wait for a change or a request; drop those that are queued with it: the next read has them all."""
        try:
            self._queue.get(timeout=seconds)
            while True:
                self._queue.get_nowait()
        except queue.Empty:
            return
