"""Changes of a board as events in queues. An event is a hint to read again; it carries no state."""

from __future__ import annotations

import queue
from abc import ABC, abstractmethod
from pathlib import Path

from liza.model.value_classes import Value


class BoardChanged(Value):
    """The board may have changed."""


class SignalChanged(Value):
    """PAUSE, CHECKPOINT or ABORT was raised or cleared."""


class FileChanged(Value):
    """A file in one of the extra directories was written, renamed or removed."""

    path: Path


class WatchLost(Value):
    """Changes may have been missed: read again. ``polling``: from now on changes are found by polling."""

    reason: str
    polling: bool


WatchEvent = BoardChanged | SignalChanged | FileChanged | WatchLost


class Watch(ABC):
    """The watches of one process. They are active at once, so a caller that reads the board then misses no change.

    Close it, or use it in a ``with`` statement.
    """

    is_polling: bool = False
    """Whether changes are found by polling."""

    @abstractmethod
    def subscribe(self, target: queue.Queue[WatchEvent]) -> None:
        """Post to ``target`` all events from now on. The first queue also gets those since the watches were armed."""

    @abstractmethod
    def add_directory(self, directory: Path) -> None:
        """Watch the files of one more directory for writes. A missing directory is ignored."""

    @abstractmethod
    def remove_directory(self, directory: Path) -> None:
        """Stop watching a directory of ``add_directory``."""

    @abstractmethod
    def rearm(self, reason: str = "asked for") -> None:
        """Set all watches again and post WatchLost, because changes in between may have been missed."""

    @abstractmethod
    def close(self) -> None:
        """Stop watching."""

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
