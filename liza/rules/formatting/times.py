"""The text of a time: on the board, in logs and in briefs."""

from __future__ import annotations

from datetime import UTC, datetime


def format_time(moment: datetime) -> str:
    """Return a time in UTC, in whole seconds: ``2026-01-31T12:00:00Z``."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
