"""Hold a lock through filelock, in processes that live long. Decision 017 says why there are two ways."""

from __future__ import annotations

from pathlib import Path

from filelock import BaseFileLock, Timeout

from liza.system import file_lock


class LibraryHold(BaseFileLock):
    """filelock's lock, with the wait of ``file_lock.lock_file`` instead of its polling."""

    _wait_limit = 0.0

    def take(self, limit: float) -> bool:
        """Take the lock, waiting at most ``limit`` seconds, for ever if negative; return whether it was taken."""
        self._wait_limit = limit
        try:
            self.acquire(0, blocking=False)
        except Timeout:
            return False
        return True

    def give(self) -> None:
        """Release the lock once. Without the lock this does nothing."""
        self.release()

    @property
    def descriptor(self) -> int | None:
        """The descriptor of the lock; None if this thread does not hold it."""
        return self._context.lock_file_fd

    def _acquire(self) -> None:
        self._context.lock_file_fd = file_lock.lock_file(Path(self.lock_file), self._wait_limit)

    def _release(self) -> None:
        descriptor = self._context.lock_file_fd
        self._context.lock_file_fd = None
        if descriptor is not None:
            file_lock.unlock_file(descriptor)
