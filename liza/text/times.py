"""The text of a time and of a duration: on the board, in logs and in briefs."""

from __future__ import annotations

from datetime import UTC, datetime

MINUTE, HOUR, DAY = 60, 3600, 86400


def format_time(moment: datetime) -> str:
    """Return a time in UTC, in whole seconds: ``2026-01-31T12:00:00Z``.

    One that UTC has outside of the years 1 to 9999, which a person or an agent wrote, keeps its offset.
    """
    try:
        return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    except OverflowError:
        return moment.isoformat(timespec="seconds")


def format_duration(seconds: float) -> str:
    """Return ``40 s``, ``4 min``, ``2 h 5 min`` or ``3 days``: at most the two largest units, rounded down."""
    total = max(0, int(seconds))
    if total < 2 * MINUTE:
        return f"{total} s"
    if total < HOUR:
        return f"{total // MINUTE} min"
    if total < 2 * DAY:
        minutes = total % HOUR // MINUTE
        return f"{total // HOUR} h" + (f" {minutes} min" if minutes else "")
    return f"{total // DAY} days"
