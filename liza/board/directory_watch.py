"""Watch `.liza` and further directories: typed events in queues, with polling once a second as the fallback.

Directories are watched, because files are replaced by rename.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import watchdog.events
from watchdog.events import (
    DirDeletedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch
from watchdog.observers.polling import PollingObserver

from liza.board.events import BoardChanged, FileChanged, SignalChanged, Watch, WatchEvent, WatchLost
from liza.board.signals import SIGNALS
from liza.model.paths import Paths

# watchdog logs errors of a watch that is being closed; without a handler they would go to stderr.
logging.getLogger("watchdog").addHandler(logging.NullHandler())

POLL_SECONDS: Final = 1.0
"""Seconds between two polls if the system offers no change events."""
# watchdog 7 has an event of its own for changed times, which `wake_up` makes; before, it is a FileModifiedEvent.
_CHANGES: Final[list[type[FileSystemEvent]]] = [
    FileCreatedEvent,
    FileModifiedEvent,
    getattr(watchdog.events, "FileAttribEvent", FileModifiedEvent),
    FileMovedEvent,
    FileDeletedEvent,
    DirDeletedEvent,
]
"""What is watched. Without this filter, each open and close of a file wakes the watchers, their own reads included: the
cost of one revision then grows with the square of the number of supervisors."""


class DirectoryWatch(Watch):
    """The watches of one process. Close it, or use it in a ``with`` statement."""

    def __init__(self, paths: Paths, extra_dirs: Iterable[Path] = (), board_file: Path | None = None) -> None:
        """``board_file`` changes with the board: `state.yaml` if it is not given."""
        self._paths = paths
        board_file = board_file or paths.state
        self._board_file = board_file.parent.resolve() / board_file.name
        own = [board_file.parent] if board_file.parent != paths.liza else []
        self._extra = list(dict.fromkeys(path.resolve() for path in (*extra_dirs, *own)))
        self._added: dict[Path, ObservedWatch | None] = {}
        self._queues: list[queue.Queue[WatchEvent]] = []
        self._guard = threading.Lock()
        self._arming = threading.Lock()
        """Held while watches are added or removed. Not held while events are posted: that happens in watchdog's thread,
        for which ``_disarm`` waits."""
        self._closed = False
        self._observer: BaseObserver | None = None
        self._undelivered: list[WatchEvent] = []
        self.is_polling = False
        self._arm()

    def subscribe(self, target: queue.Queue[WatchEvent]) -> None:
        with self._guard:
            self._queues.append(target)
            early, self._undelivered = self._undelivered, []
        for event in early:
            target.put(event)

    def add_directory(self, directory: Path) -> None:
        path = directory.resolve()
        with self._arming:
            if not self._closed and path not in self._added:
                self._added[path] = self._schedule(path)

    def remove_directory(self, directory: Path) -> None:
        with self._arming:
            watch = self._added.pop(directory.resolve(), None)
            if self._observer is not None and watch is not None:
                with contextlib.suppress(KeyError, OSError):
                    self._observer.unschedule(watch)

    def _schedule(self, path: Path) -> ObservedWatch | None:
        if self._observer is None or not path.is_dir():
            return None
        try:
            # Only writes: a watcher that reads the files would get events of its own reads.
            return self._observer.schedule(_Handler(self._on_event), str(path), event_filter=[FileModifiedEvent])
        except OSError:
            return None

    def rearm(self, reason: str = "asked for") -> None:
        with self._arming:
            if self._closed:
                return
            self._disarm()
            if self._paths.liza.is_dir():  # arming would create the directories of a crew that was removed
                self._arm()
        self._post(WatchLost(reason, self.is_polling))

    def close(self) -> None:
        with self._arming:
            self._closed = True
            self._disarm()

    def _arm(self) -> None:
        directories = [self._paths.liza.resolve(), *self._extra]
        # Do not create directories at the former path of a repository that was moved.
        for path in self._extra if self._paths.liza.is_dir() else ():
            path.mkdir(parents=True, exist_ok=True)
        try:
            self._observer = _start_observer(Observer(), directories, self._on_event)
            self.is_polling = False
        except OSError as error:
            self._observer = _start_observer(PollingObserver(timeout=POLL_SECONDS), directories, self._on_event)
            self.is_polling = True
            self._post(WatchLost(f"{os.strerror(error.errno or 0)}: polling every {POLL_SECONDS:g} s", True))
        self._added = {path: self._schedule(path) for path in self._added}

    def _disarm(self) -> None:
        if self._observer is not None:
            self._observer.stop()
            if threading.current_thread() is not self._observer:
                self._observer.join()
            self._observer = None

    def _on_event(self, event: FileSystemEvent) -> None:
        for raw in {event.src_path, event.dest_path} - {""}:
            self._classify(Path(os.fsdecode(raw)), event)

    def _classify(self, path: Path, event: FileSystemEvent) -> None:
        liza_directory = self._paths.liza.resolve()
        if event.event_type == "deleted" and (path == liza_directory or path in self._extra):
            threading.Thread(target=self.rearm, args=(f"{path} was removed",), daemon=True).start()
        elif path == self._board_file:
            self._post(BoardChanged())
        elif event.event_type == "deleted" and path in (
            liza_directory / self._paths.pins.name,
            liza_directory / self._paths.locks.name,
        ):
            # A crew cannot run without these: the waiting supervisor has to check whether it may continue.
            self._post(WatchLost(f"{path} was deleted", self.is_polling))
        elif path.parent == liza_directory and path.name in SIGNALS:
            self._post(SignalChanged())
        elif (path.parent in self._extra or path.parent in self._added) and not event.is_directory:
            self._post(FileChanged(path))

    def _post(self, event: WatchEvent) -> None:
        with self._guard:
            targets = list(self._queues)
            if not targets and event not in self._undelivered:
                self._undelivered.append(event)
        for target in targets:
            target.put(event)


class _Handler(FileSystemEventHandler):
    def __init__(self, callback: object) -> None:
        self._callback = callback

    def on_any_event(self, event: FileSystemEvent) -> None:
        with contextlib.suppress(queue.Full):
            self._callback(event)  # type: ignore[operator]


def _start_observer(observer: BaseObserver, directories: Iterable[Path], callback: object) -> BaseObserver:
    """Start the observer with a watch on each directory. Raises OSError if the system has no watches left."""
    handler = _Handler(callback)
    try:
        for path in directories:
            observer.schedule(handler, str(path), recursive=False, event_filter=_CHANGES)
        observer.start()
    except OSError:
        observer.stop()
        raise
    return observer
