"""The number of coders that `liza up --coders auto` runs: start one more, retire one, or wait. Pure.

The decision depends only on the present facts. One coder is started at a time: the next one only when no running coder
takes the task that waits. A coder is retired only after it was idle for a while, so a short gap between two tasks
changes nothing.
"""

from __future__ import annotations

from liza.model.value_classes import Value


class CoderFacts(Value):
    """A coder that runs.

    ``is_busy``: it holds a task. ``is_leaving``: it was asked to leave. ``can_claim``: a task is claimable by it.
    ``has_open_task``: a task that it submitted may come back to it. ``idle_seconds``: for
    how long it has had nothing to do.
    """

    agent: str
    is_busy: bool = False
    is_leaving: bool = False
    can_claim: bool = False
    has_open_task: bool = False
    idle_seconds: float = 0.0


class SizeFacts(Value):
    """The coders of a crew.

    ``newcomer``: the agent that would be started next; None if all places are used. ``waiting_task``: a task that it
    could claim. ``failed``: coders whose supervisors failed; they use a place, and are not started again. ``halt``: why
    no coder is to be started now. ``patience``: seconds for which a coder must be idle before it is retired.
    """

    minimum: int
    maximum: int
    patience: float
    coders: tuple[CoderFacts, ...] = ()
    failed: int = 0
    newcomer: str | None = None
    waiting_task: str | None = None
    halt: str | None = None


class StartCoder(Value):
    """Start the supervisor of a coder."""

    agent: str
    why: str


class RetireCoder(Value):
    """Ask the supervisor of a coder to leave as soon as it has nothing to do."""

    agent: str
    why: str


class KeepSize(Value):
    """Change nothing. ``seconds``: until a coder may be retired; None if only a change of the board can matter."""

    seconds: float | None = None


def decide_size(facts: SizeFacts) -> StartCoder | RetireCoder | KeepSize:
    """Return what to do about the number of coders."""
    start = _start_one(facts)
    if start is not None:
        return start
    if sum(not coder.is_leaving for coder in facts.coders) <= facts.minimum:
        return KeepSize()
    # The last one in the crew's order has the highest number: the first ones stay, with the slots that they know.
    for coder in reversed(facts.coders):
        if _is_spare(coder) and coder.idle_seconds >= facts.patience:
            return RetireCoder(coder.agent, f"idle for {coder.idle_seconds:.0f} s, and no task waits for it")
    waits = [facts.patience - coder.idle_seconds for coder in facts.coders if _is_spare(coder)]
    return KeepSize(min(waits) if waits else None)


def _start_one(facts: SizeFacts) -> StartCoder | None:
    if facts.halt is not None or facts.newcomer is None or facts.waiting_task is None:
        return None
    if len(facts.coders) + facts.failed >= facts.maximum:
        return None
    if any(coder.can_claim and not (coder.is_busy or coder.is_leaving) for coder in facts.coders):
        return None
    return StartCoder(facts.newcomer, f"{facts.waiting_task} waits, and no coder is free for it")


def _is_spare(coder: CoderFacts) -> bool:
    return not (coder.is_busy or coder.is_leaving or coder.can_claim or coder.has_open_task)
