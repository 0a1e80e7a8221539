"""Priorities of prompts. Pure. Commands of agents load this module, so it imports little.

| priority | program with hooks or a terminal | runtime with a stream |
|---|---|---|
| system | the next hook that can carry a text, else the next turn | at once; it adds it at the next edge of a turn |
| urgent | as system | at once; it interrupts the turn |
| normal | the end or the beginning of a turn | one at a time, while the run waits for a prompt |
"""

from __future__ import annotations

from enum import StrEnum

MAX_PENDING = 1000
"""Maximum number of prompts that an agent has not read. Messages of Liza itself are stored beyond it."""


class PromptPriority(StrEnum):
    """When a prompt reaches the model: ``system`` at the next edge of a turn, ``urgent`` at once, by interrupting the
    turn, ``normal`` when the agent is idle."""

    SYSTEM = "system"
    URGENT = "urgent"
    NORMAL = "normal"


PRIORITIES = tuple(PromptPriority)
"""The priorities in the order of delivery."""
PRIORITIES_OF_0_1_0 = {"startup": PromptPriority.SYSTEM, "low": PromptPriority.NORMAL}
"""Priorities that only files of version 0.1.0 have."""
DURING_TURN = frozenset({PromptPriority.SYSTEM, PromptPriority.URGENT})
"""Priorities that are delivered while a turn is under way."""
