"""Read the new lines of a file that another process appends to, wait until it grows, with inotify, and wake others.

After an event that does not change the board an agent touches its own file in a directory that all supervisors watch.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from liza.model.paths import Paths
from liza.system import processes, untrusted_files

BLOCK = 1 << 20
"""Bytes of one read."""
LONGEST_LINE = 16 << 20
"""Maximum length of a line, in bytes; longer lines are dropped."""

# Values of linux/inotify.h.
IN_MODIFY = 2
CLOSED, MOVED_HERE, CREATED = 8, 0x80, 0x100  # IN_CLOSE_WRITE, IN_MOVED_TO, IN_CREATE
NEWS = CLOSED | MOVED_HERE | CREATED
"""Events of a directory: a file in it was created, was replaced, or was closed after writing."""
QUIET_SECONDS = 0.005  # seconds without growth after which a screen update is complete
MAX_BURST_SECONDS = 0.05  # longest wait for a continuous update, in seconds


@contextmanager
def watch_growth(path: Path, events: int = IN_MODIFY) -> Iterator[Callable[[float], None]]:
    """Yield a function that waits until the file has grown and then paused, at most the given number of seconds.

    Growth since the last call counts. Without inotify the function sleeps for the whole time. ``events``: mask of the
    inotify events to wait for.
    """
    handle = _open_inotify(path, events)
    if handle is None:
        yield time.sleep
        return
    try:
        yield lambda seconds: _wait_for_growth(handle, seconds)
    finally:
        os.close(handle)


def _wait_for_growth(handle: int, seconds: float) -> None:
    if not processes.wait_readable(handle, seconds):
        return
    end = time.monotonic() + MAX_BURST_SECONDS
    while processes.wait_readable(handle, QUIET_SECONDS) and time.monotonic() < end:
        os.read(handle, 4096)


def _open_inotify(path: Path, events: int) -> int | None:
    """Return an inotify descriptor with a watch on ``path``; None if the system offers none."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        handle = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    except (OSError, AttributeError):
        return None
    if handle < 0:
        return None
    if libc.inotify_add_watch(handle, os.fsencode(path), events) < 0:
        os.close(handle)
        return None
    return handle


class Tail:
    """The lines that were appended to a file since the last call. A path that does not exist has none.

    ``first``: start that many bytes before the end; None: start at the beginning. ``most``: if there are more new
    bytes, read only that many at the end. If the file became shorter, continue at its end, or with ``anew`` at its
    beginning.
    """

    def __init__(self, path: Path, *, first: int | None = None, most: int | None = None, anew: bool = False) -> None:
        self.path = path
        self.size = 0
        """Bytes of the file that were read or skipped."""
        self._first, self._most, self._anew = first, most, anew
        self._began = first is None
        self._rest = b""

    def lines(self) -> Iterator[str]:
        """Yield the lines that are complete now. Raises NotRegularFile, OSError."""
        end = self._end()
        while self.size < end and (block := self._block(end)):
            *complete, self._rest = (self._rest + block).split(b"\n")
            if len(self._rest) > LONGEST_LINE:
                self._rest = b""
            for line in complete:
                yield line.decode(errors="replace").rstrip("\r")

    def _end(self) -> int:
        """Return the current size of the file, and set ``self.size`` to the offset of the next read."""
        try:
            with untrusted_files.open_to_read(self.path) as file:
                end = file.seek(0, 2)
        except FileNotFoundError:
            return 0
        if not self._began:
            self._began, self.size = True, max(0, end - (self._first or 0))
        if end < self.size:
            self.size, self._rest = 0 if self._anew else end, b""
        if self._most is not None and end - self.size > self._most:
            self.size, self._rest = end - self._most, b""
        return end

    def _block(self, end: int) -> bytes:
        try:
            with untrusted_files.open_to_read(self.path) as file:
                file.seek(self.size)
                block = file.read(min(BLOCK, end - self.size))
        except FileNotFoundError:
            return b""
        self.size += len(block)
        return block


BOARD = "board"
"""Name of the file that is touched when a board in PostgreSQL has changed."""


def wake_directory(paths: Paths) -> Path:
    """Return the directory to watch."""
    return paths.liza / "bell"


def wake_watchers(paths: Paths, agent: str) -> None:
    """Touch the file of ``agent``, or BOARD, which wakes all watchers.

    Raises OSError, also if ``.liza`` does not exist: the repository may have been moved, so it is not created.
    """
    wake_directory(paths).mkdir(exist_ok=True)
    path = wake_directory(paths) / agent
    path.touch()
    os.utime(path)


def last_wake(paths: Paths, agent: str) -> int | None:
    """Return the mtime in nanoseconds of the last wake-up by ``agent``; None if there was none. Raises OSError."""
    try:
        return (wake_directory(paths) / agent).stat().st_mtime_ns
    except FileNotFoundError:
        return None
