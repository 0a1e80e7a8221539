"""What to do next about a message that an agent has not acknowledged. Pure.

A message waits in the agent's inbox until somebody sees that it was read: the program's own hook took it, the agent
said `liza ready`, or its answer shows it. Typing is one way to carry it, and never the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from liza.rules.model import AwareDatetime, Delivery, FrozenStruct

PRIORITIES = ("startup", "urgent", "normal", "low")
OFFERED = 20.0  # seconds for which a message that a hook took is left to it: as long as a program waits for a hook


class MessageStage(StrEnum):
    """How far a message came that nobody acknowledged."""

    QUEUED = "queued"
    FILED = "filed"
    TOLD = "told"


class Message(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that an agent is to know. ``attempts`` are tries to carry it into a session, ``tried`` the last one's
    time, ``carried`` whether that one was seen to arrive."""

    id: str
    priority: str
    text: str
    sender: str
    created: AwareDatetime
    stage: MessageStage = MessageStage.QUEUED
    attempts: int = 0
    tried: AwareDatetime | None = None
    carried: bool = False
    run: str | None = None
    typing: bool = False
    """Whether it was put into the terminal of ``run``: no hook of that run brings it a second time."""
    offered: AwareDatetime | None = None
    """When a hook took it to bring it; for a moment it is not typed, for the hook may not have said so yet."""
    acknowledged: AwareDatetime | None = None
    by: str | None = None

    @property
    def is_started(self) -> bool:
        """Whether anything was done to bring it."""
        return self.attempts > 0 or self.stage is not MessageStage.QUEUED


@dataclass(frozen=True)
class DeliveryChannels:
    """How the agent's session can be reached now. ``fetches``: its hooks take messages at the edges of a turn.
    ``types``: it has a terminal, where something may be typed once the program waits for it."""

    run: str
    has_hooks: bool = False
    has_terminal: bool = False
    in_turn: bool = False
    """Whether a turn is under way, at whose edges its hooks take messages."""


@dataclass(frozen=True)
class TypeMessage:
    """Wait for a moment to type it into the session's terminal, and see that it went in. None within the time for one
    counts as a try."""

    message: Message


@dataclass(frozen=True)
class PutInBrief:
    """Write it into the brief, where the next look finds it."""

    message: Message


@dataclass(frozen=True)
class TellPerson:
    """Nothing came of all this: tell the person."""

    message: Message


@dataclass(frozen=True)
class TryLater:
    """Nothing to do before ``seconds`` have passed; None: before something happens."""

    why: str
    seconds: float | None = None


DeliveryStep = TypeMessage | PutInBrief | TellPerson | TryLater


def sort_unacknowledged(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Those not acknowledged, the most urgent first, the oldest first among equals."""
    waiting = [one for one in messages if one.acknowledged is None]
    return tuple(sorted(waiting, key=lambda one: (PRIORITIES.index(one.priority), one.created, one.id)))


def next_step(
    messages: Sequence[Message], reach: DeliveryChannels | None, now: datetime, how: Delivery
) -> DeliveryStep:
    """What to do for the first message that needs something; one that waits does not hold up those behind it, but the
    terminal is given to one at a time."""
    waits: list[TryLater] = []
    for message in sort_unacknowledged(messages):
        if message.stage is MessageStage.TOLD:
            continue
        if reach is None:
            return TryLater("no session runs: it goes into the next brief")
        step = _step(message, reach, now, how)
        if not isinstance(step, TryLater):
            return step
        waits.append(step)
        if reach.has_terminal and message.stage is MessageStage.QUEUED:
            break
    return min(waits, key=_delay_of, default=TryLater("nothing waits"))


def left_to_hook(message: Message, now: datetime) -> float:
    """Seconds for which a hook that took it may still bring it; what is typed meanwhile would be read twice."""
    return 0.0 if message.offered is None else OFFERED - abs((now - message.offered).total_seconds())


def format_typed(message: Message, how: Delivery, liza: str = "liza") -> str:
    """The message as it is typed: who says it, and how to show that it was read, in front, for by its end a text on a
    screen is told from others. What Liza itself says is whole as it is.

    ``liza`` is the command as a shell of the session finds it.
    """
    if message.sender == "liza":
        return message.text
    asks = f" (to show that you read it, say: {liza} ready)" if how.require_acknowledgment else ""
    return f"MESSAGE from {message.sender}{asks}: {message.text}"


def _delay_of(wait: TryLater) -> float:
    return float("inf") if wait.seconds is None else wait.seconds


def _step(message: Message, reach: DeliveryChannels, now: datetime, how: Delivery) -> DeliveryStep:
    if message.stage is MessageStage.FILED:
        left = _seconds_left(message, now, how.retry_backoffs[-1] if how.retry_backoffs else how.acknowledgment_timeout)
        if left > 0:
            return TryLater("it stands in the brief", left)
        return TellPerson(message) if how.send_notification_on_failure else TryLater("it stands in the brief")
    rest = _seconds_left(message, now, _retry_delay(message, how))
    if rest > 0:
        return TryLater("waits for an answer" if message.carried else "tried in vain, and tries again", rest)
    if message.attempts >= how.file_fallback_after_attempts or message.carried:
        # What was seen to be taken is not typed once more: it would be read twice.
        return PutInBrief(message)
    if reach.has_terminal and reach.has_hooks and reach.in_turn:
        # A hook brings it whole, and to a program that is at work.
        left = how.readiness_timeout - _seconds_since_try(message, now)
        if left > 0 and not message.attempts:
            return TryLater("its hook takes it while the turn lasts", left)
    if reach.has_terminal:
        left = left_to_hook(message, now)
        return TypeMessage(message) if left <= 0 else TryLater("a hook has just taken it", left)
    return TryLater("its hook takes it at the end of the turn") if reach.has_hooks else PutInBrief(message)


def _retry_delay(message: Message, how: Delivery) -> float:
    """Seconds from the last try to the next: longer after each, and long enough for an answer to one that arrived."""
    if message.attempts == 0:
        return 0.0
    offs = how.retry_backoffs or (0.0,)
    pause = offs[min(message.attempts, len(offs)) - 1]
    return max(pause, how.acknowledgment_timeout) if message.carried else pause


def _seconds_left(message: Message, now: datetime, seconds: float) -> float:
    return (
        seconds - _seconds_since_try(message, now) if message.attempts or message.stage is MessageStage.FILED else 0.0
    )


def _seconds_since_try(message: Message, now: datetime) -> float:
    """Seconds since the last try, or since it came; a clock that was set back must not hold it up for ever."""
    return abs((now - (message.tried or message.created)).total_seconds())
