"""Phases of a program's turn, as its hooks report them."""

from __future__ import annotations

from enum import StrEnum


class TurnPhase(StrEnum):
    """Phase of the turn in ``turn.json``."""

    STARTED = "started"
    """The program has started, and has no prompt yet."""
    BUSY = "busy"
    IDLE = "idle"
    """The turn is over."""
    STOPPED = "stopped"
    """The program ends."""
