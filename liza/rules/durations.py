"""Spans of time in words."""

from __future__ import annotations

MINUTE, HOUR, DAY = 60, 3600, 86400


def format_duration(seconds: float) -> str:
    """``40 s``, ``4 min``, ``2 h 5 min``, ``3 days``: the two largest units at most, rounded down."""
    whole = max(0, int(seconds))
    if whole < 2 * MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE} min"
    if whole < 2 * DAY:
        minutes = whole % HOUR // MINUTE
        return f"{whole // HOUR} h" + (f" {minutes} min" if minutes else "")
    return f"{whole // DAY} days"
