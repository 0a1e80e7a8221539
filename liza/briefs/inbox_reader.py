"""Read an inbox again and again: only what changed since the last read is opened."""

from __future__ import annotations

import os
import threading
import time

from liza.briefs import inbox
from liza.briefs.rules.message_rules import Message, sort_unacknowledged
from liza.model.paths import Paths

_CLOCK_TICK_NS = 50_000_000
"""Two changes of a directory within a tick of the file system's clock have one time."""


class InboxReader:
    """The pending messages of one agent. Thread-safe.

    Each change of a message replaces its file. So a directory that did not change has no new content, and a file that
    is the same inode of the same time is not read again.
    """

    def __init__(self, paths: Paths, agent: str) -> None:
        self._paths, self._agent = paths, agent
        self._directory = inbox.inbox_path(paths, agent)
        self._guard = threading.Lock()
        self._directory_time: int | None = None
        """Time of the directory's last change at the last read; None: it may have changed since."""
        self._files: dict[str, tuple[tuple[int, int, int], Message | None]] = {}
        self._pending: tuple[Message, ...] = ()

    def list_pending(self) -> tuple[Message, ...]:
        """Return the messages that are not acknowledged, in the order of delivery. Raises OSError."""
        with self._guard:
            try:
                changed = self._directory.stat().st_mtime_ns
            except FileNotFoundError:
                return ()
            if changed != self._directory_time:
                began = time.time_ns()
                self._read_directory()
                self._directory_time = changed if abs(began - changed) > _CLOCK_TICK_NS else None
            return self._pending

    def _read_directory(self) -> None:
        files = {}
        with os.scandir(self._directory) as entries:
            for entry in entries:
                if not entry.name.endswith(".json"):
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                stamp = status.st_ino, status.st_mtime_ns, status.st_size
                stored = self._files.get(entry.name)
                if stored is None or stored[0] != stamp:
                    message = inbox.read_message(self._directory / entry.name)
                    stored = stamp, message if isinstance(message, Message) else None
                files[entry.name] = stored
        self._files = files
        self._pending = sort_unacknowledged([message for _, message in files.values() if message is not None])
