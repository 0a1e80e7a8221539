"""The machine's clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """The machine's clock: UTC in whole seconds, and monotonic seconds that do not advance while the machine sleeps."""

    def now(self) -> datetime:
        return datetime.now(UTC).replace(microsecond=0)

    def monotonic(self) -> float:
        return time.monotonic()


def boottime() -> float:
    """Return the seconds since boot, with the time asleep: CLOCK_BOOTTIME, which cannot be set."""
    # macOS has no CLOCK_BOOTTIME; there CLOCK_MONOTONIC_RAW goes on while the machine sleeps.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC_RAW))
