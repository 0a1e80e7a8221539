"""A signal that comes twice and was meant once."""

from __future__ import annotations

import signal
import time

WITHIN = 1.0  # seconds


class Repeats:
    """timeout(1) sends SIGTERM to its child, and then to the group that the child is in: that is one wish, not two."""

    def __init__(self) -> None:
        self._term = float("-inf")

    def is_new(self, number: int, now: float | None = None) -> bool:
        """Whether a signal counts: all but a SIGTERM within a second of one that counted. ``now``: in seconds."""
        if number != signal.SIGTERM:
            return True
        at = time.monotonic() if now is None else now
        if at - self._term < WITHIN:
            return False
        self._term = at
        return True
