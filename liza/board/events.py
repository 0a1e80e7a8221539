"""What the file system tells: typed events in a queue, and one-second looking where it cannot tell.

Watches lie on directories, because files are replaced by rename. They are armed when ``watch`` returns, so whoever
reads the board after that misses nothing. An event is a hint to look; it carries no state.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from watchdog.events import FileModifiedEvent, FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch
from watchdog.observers.polling import PollingObserver

from liza.board.signals import SIGNALS
from liza.rules.paths import Paths

# What watchdog says of a watch that is being closed is of no use to anyone at a terminal.
logging.getLogger("watchdog").addHandler(logging.NullHandler())

POLL_SECONDS: Final = 1.0
"""Seconds between two looks where the system cannot tell of changes."""
_READ_EVENTS: Final = frozenset(("opened", "closed_no_write"))


@dataclass(frozen=True)
class BoardChanged:
    """The board may be another one now."""


@dataclass(frozen=True)
class SignalChanged:
    """PAUSE, CHECKPOINT or ABORT was raised or taken down."""


@dataclass(frozen=True)
class FileChanged:
    """A file in one of the extra directories was written, renamed or removed."""

    path: Path


@dataclass(frozen=True)
class WatchLost:
    """Changes may have been missed: read again. ``polling`` says that from now on there is looking, not telling."""

    reason: str
    polling: bool


WatchEvent = BoardChanged | SignalChanged | FileChanged | WatchLost


class Watch:
    """The watches of one process. Close it, or use it in a ``with``."""

    def __init__(self, paths: Paths, extra_dirs: Iterable[Path]) -> None:
        self._paths = paths
        self._extra = [path.resolve() for path in extra_dirs]
        self._added: dict[Path, ObservedWatch | None] = {}
        self._queues: list[queue.Queue[WatchEvent]] = []
        self._guard = threading.Lock()
        self._arming = threading.Lock()
        """Held while watches come and go; never while events are posted, which the watches' thread does."""
        self._closed = False
        self._observer: BaseObserver | None = None
        self._undelivered: list[WatchEvent] = []
        self.is_polling = False
        self._arm()

    def subscribe(self, target: queue.Queue[WatchEvent]) -> None:
        """Posts every event from now on, and what happened since the watches were armed, to ``target``."""
        with self._guard:
            self._queues.append(target)
            early, self._undelivered = self._undelivered, []
        for happening in early:
            target.put(happening)

    def add_directory(self, directory: Path) -> None:
        """Watch the files of one more directory for writes; one that is not there is left out."""
        path = directory.resolve()
        with self._arming:
            if not self._closed and path not in self._added:
                self._added[path] = self._schedule(path)

    def remove_directory(self, directory: Path) -> None:
        """Stop watching a directory of ``also``."""
        with self._arming:
            laid = self._added.pop(directory.resolve(), None)
            if self._observer is not None and laid is not None:
                with contextlib.suppress(KeyError, OSError):
                    self._observer.unschedule(laid)

    def _schedule(self, path: Path) -> ObservedWatch | None:
        if self._observer is None or not path.is_dir():
            return None
        try:
            # Only writes: whoever reads the files would hear of its own reading.
            return self._observer.schedule(_Handler(self._on_event), str(path), event_filter=[FileModifiedEvent])
        except OSError:
            return None

    def rearm(self, reason: str = "asked for") -> None:
        """Lays the watches anew and posts WatchLost: what happened in between may have been missed."""
        with self._arming:
            if self._closed:
                return
            self._disarm()
            if self._paths.liza.is_dir():  # a crew that is gone must not come back as an empty directory
                self._arm()
        self._post(WatchLost(reason, self.is_polling))

    def close(self) -> None:
        """Ends the watching."""
        with self._arming:
            self._closed = True
            self._disarm()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _arm(self) -> None:
        directories = [self._paths.liza.resolve(), *self._extra]
        # What was moved away is not made again at its former place.
        for path in self._extra if self._paths.liza.is_dir() else ():
            path.mkdir(parents=True, exist_ok=True)
        try:
            self._observer = _start_observer(Observer(), directories, self._on_event)
            self.is_polling = False
        except OSError as error:
            self._observer = _start_observer(PollingObserver(timeout=POLL_SECONDS), directories, self._on_event)
            self.is_polling = True
            self._post(WatchLost(f"{os.strerror(error.errno or 0)}: looking every {POLL_SECONDS:g} s", True))
        self._added = {path: self._schedule(path) for path in self._added}

    def _disarm(self) -> None:
        if self._observer is not None:
            self._observer.stop()
            if threading.current_thread() is not self._observer:
                self._observer.join()
            self._observer = None

    def _on_event(self, event: FileSystemEvent) -> None:
        if event.event_type in _READ_EVENTS:
            return
        for raw in {event.src_path, event.dest_path} - {""}:
            self._classify(Path(os.fsdecode(raw)), event)

    def _classify(self, path: Path, event: FileSystemEvent) -> None:
        home = self._paths.liza.resolve()
        if event.event_type == "deleted" and (path == home or path in self._extra):
            threading.Thread(target=self.rearm, args=(f"{path} went away",), daemon=True).start()
        elif path.parent == home and path.name == self._paths.state.name:
            self._post(BoardChanged())
        elif event.event_type == "deleted" and path in (home / self._paths.pins.name, home / self._paths.locks.name):
            # What a crew cannot be without: whoever waits has to look whether it may go on.
            self._post(WatchLost(f"{path} was deleted", self.is_polling))
        elif path.parent == home and path.name in SIGNALS:
            self._post(SignalChanged())
        elif (path.parent in self._extra or path.parent in self._added) and not event.is_directory:
            self._post(FileChanged(path))

    def _post(self, happening: WatchEvent) -> None:
        with self._guard:
            targets = list(self._queues)
            if not targets and happening not in self._undelivered:
                self._undelivered.append(happening)
        for target in targets:
            target.put(happening)


class _Handler(FileSystemEventHandler):
    def __init__(self, told: object) -> None:
        self._callback = told

    def on_any_event(self, event: FileSystemEvent) -> None:
        with contextlib.suppress(queue.Full):
            self._callback(event)  # type: ignore[operator]


def _start_observer(observer: BaseObserver, directories: Iterable[Path], told: object) -> BaseObserver:
    """The observer, started, with a watch on each directory. Raises OSError where the system has none to give."""
    handler = _Handler(told)
    try:
        for path in directories:
            observer.schedule(handler, str(path), recursive=False)
        observer.start()
    except OSError:
        observer.stop()
        raise
    return observer


def watch(paths: Paths, extra_dirs: Iterable[Path] = ()) -> Watch:
    """Arms the watches over the board, the signals and ``extra_dirs`` (made where missing) and returns."""
    return Watch(paths, extra_dirs)
