"""Hearing that a file grows: what a program shows in its terminal goes to one as well, and the kernel tells of that."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from liza.system import processes

IN_MODIFY = 2
CLOSED, MOVED_HERE, CREATED = 8, 0x80, 0x100
NEWS = CLOSED | MOVED_HERE | CREATED
"""Of a directory: a file of it is there, was replaced, or is not written to any more."""
QUIET_SECONDS = 0.005  # seconds without another word that make what was drawn whole
MAX_BURST_SECONDS = 0.05  # seconds of drawing after which one looks all the same


@contextmanager
def watch_growth(path: Path, events: int = IN_MODIFY) -> Iterator[Callable[[float], None]]:
    """What waits until the file has grown and come to rest, so many seconds at the longest; growth since the last time
    counts. Where the system does not tell, it waits for as long as it may. ``events``: those of inotify that count."""
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
    """A descriptor that can be read once the file grew; None where the system has none to give."""
    try:
        system = ctypes.CDLL(None, use_errno=True)
        handle = int(system.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    except (OSError, AttributeError):
        return None
    if handle < 0:
        return None
    if system.inotify_add_watch(handle, os.fsencode(path), events) < 0:
        os.close(handle)
        return None
    return handle
