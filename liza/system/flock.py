"""Lock a file or a directory with flock(2)."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from liza.rules.errors import LockTimeout


@contextmanager
def lock_path(path: Path, timeout: float = 300) -> Iterator[int]:
    """Hold flock(2) on ``path``: an existing directory, or a file, which is created if missing.

    Yields the descriptor; a child that inherits it keeps the lock. Raises LockTimeout after ``timeout`` seconds,
    OSError.
    """
    if not path.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
    kind = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
    handle = os.open(path, kind | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _wait_for_lock(handle, path, timeout)
    try:
        yield handle
    finally:
        os.close(handle)


def _wait_for_lock(handle: int, path: Path, timeout: float) -> None:
    """Wait in a thread, because flock(2) has no timeout. After the timeout the thread closes ``handle``."""
    mutex, given_up = threading.Lock(), False
    done = threading.Event()

    def wait() -> None:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with mutex:
            if given_up:
                os.close(handle)
        done.set()

    threading.Thread(target=wait, daemon=True, name=f"flock {path.name}").start()
    if done.wait(timeout):
        return
    with mutex:
        if not done.is_set():
            given_up = True
            raise LockTimeout(f"{path} was not free within {timeout:g} s: another process holds it", "liza doctor")
