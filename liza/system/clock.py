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
