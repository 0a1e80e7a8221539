"""Ignore the second SIGTERM of timeout(1)."""

from __future__ import annotations

import signal
import time

WITHIN = 1.0  # seconds


class Repeats:
    """timeout(1) sends SIGTERM to its child and again to the child's process group: count this as one signal."""

    def __init__(self) -> None:
        self._term = float("-inf")

    def is_new(self, number: int, now: float | None = None) -> bool:
        """Return False for a SIGTERM less than 1 s after one that counted, else True. ``now``: monotonic seconds."""
        if number != signal.SIGTERM:
            return True
        at = time.monotonic() if now is None else now
        if at - self._term < WITHIN:
            return False
        self._term = at
        return True
