"""Phases of a program's turn, as its hooks or its runtime report them."""

from __future__ import annotations

from enum import StrEnum


class TurnPhase(StrEnum):
    """Phase of the turn in ``turn.json``."""

    STARTED = "started"
    """The program has started, and has no prompt yet."""
    READY = "ready"
    """Its runtime accepts the first prompt. Hooks do not report it."""
    BUSY = "busy"
    IDLE = "idle"
    """The turn is over."""
    STOPPING = "stopping"
    """Its runtime is about to end the program. Hooks do not report it."""
    STOPPED = "stopped"
    """The program ends, or its runtime has ended it."""
