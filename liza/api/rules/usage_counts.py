"""The usage of one turn, from figures that programs count in different ways."""

from __future__ import annotations

from enum import StrEnum

from liza.model.value_classes import Value


class UsageScope(StrEnum):
    """What a reported figure counts."""

    TURN = "turn"
    SESSION = "session"
    """All turns since the program has begun or loaded the conversation: the turn's share is the difference."""
    CONVERSATION = "conversation"
    """All turns of the conversation, those of earlier sessions included."""
    REQUEST = "request"
    """One request: all that are reported in a turn are added up."""


class UsageCounts(Value):
    """Tokens and cost in US dollars. ``cached`` is part of ``input``. ``cost`` None: not reported."""

    input: int = 0
    cached: int = 0
    output: int = 0
    cost: float | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is counted."""
        return not (self.input or self.output or self.cost)


def add_counts(first: UsageCounts, second: UsageCounts) -> UsageCounts:
    """Return the sum."""
    costs = [cost for cost in (first.cost, second.cost) if cost is not None]
    return UsageCounts(
        first.input + second.input,
        first.cached + second.cached,
        first.output + second.output,
        sum(costs) if costs else None,
    )


def share_of_turn(reported: UsageCounts, earlier: UsageCounts, scope: UsageScope) -> UsageCounts:
    """Return what a turn used. ``earlier`` is the figure at the end of the turn before.

    A figure below the earlier one belongs to a new count: the program started counting again.
    """
    if scope not in (UsageScope.SESSION, UsageScope.CONVERSATION):
        return reported
    if reported.input < earlier.input or reported.output < earlier.output:
        return reported
    return UsageCounts(
        reported.input - earlier.input,
        max(0, reported.cached - earlier.cached),
        reported.output - earlier.output,
        None if reported.cost is None else max(0.0, reported.cost - (earlier.cost or 0.0)),
    )
