"""Format durations for people."""

from __future__ import annotations

MINUTE, HOUR, DAY = 60, 3600, 86400


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
