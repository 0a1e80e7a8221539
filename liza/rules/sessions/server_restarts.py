"""When the server of the worker API is started again after it ended. Pure."""

from __future__ import annotations

from typing import Final

from liza.rules.backoff import backoff

LONG_LIFE: Final = 60.0
"""Seconds after which an end counts as the first one again."""
FIRST_DELAY: Final = 0.5
MAX_DELAY: Final = 60.0


def restart_delay(failures: int) -> float:
    """Return the seconds to wait before a start; ``failures`` counts the ends in a row after a short life."""
    return backoff(failures, FIRST_DELAY, MAX_DELAY)
