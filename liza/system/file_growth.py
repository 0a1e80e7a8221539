"""Wait until a file grows, with inotify: the output of a terminal is also written to a file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from liza.system import processes

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
    import ctypes

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
