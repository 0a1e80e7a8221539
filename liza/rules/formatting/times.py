"""The text of a time: on the board, in logs and in briefs."""

from __future__ import annotations

from datetime import UTC, datetime


def format_time(moment: datetime) -> str:
    """Return a time in UTC, in whole seconds: ``2026-01-31T12:00:00Z``.

    One that UTC has outside of the years 1 to 9999, which a person or an agent wrote, keeps its offset.
    """
    try:
        return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    except OverflowError:
        return moment.isoformat(timespec="seconds")
