"""The time of the PostgreSQL server, from the answers to statements. The clock of a crew on several hosts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from liza.model.errors import LizaError
from liza.model.model import Clock
from liza.system.clock import boottime


class ServerTime:
    """The server's time at some moment of CLOCK_BOOTTIME, which goes on while this machine sleeps."""

    def __init__(self) -> None:
        self._measured: tuple[datetime, float] | None = None

    def measure(self, time: datetime, moment: float | None = None) -> None:
        """Remember the server's time at ``moment`` of CLOCK_BOOTTIME; None: now, when its answer came."""
        self._measured = (time, boottime() if moment is None else moment)

    def now(self) -> datetime | None:
        """Return the time of the server; None if it never answered."""
        if self._measured is None:
            return None
        time, moment = self._measured
        return time.astimezone(UTC) + timedelta(seconds=boottime() - moment)


class ServerClock:
    """The server's time as the clock of a crew. Without an answer of the server it is the time of this machine."""

    def __init__(self, time: ServerTime, ask: Callable[[], object], system: Clock) -> None:
        """``ask`` asks the server for its time, if no answer of it was measured yet."""
        self._time = time
        self._ask = ask
        self._system = system

    def now(self) -> datetime:
        """Return the time in whole seconds, UTC."""
        if self._time.now() is None:
            with suppress(LizaError):
                self._ask()
        now = self._time.now()
        return self._system.now() if now is None else now.replace(microsecond=0)

    def monotonic(self) -> float:
        """Return seconds of this machine that do not advance while it sleeps."""
        return self._system.monotonic()
