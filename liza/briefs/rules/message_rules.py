"""Priorities of messages, and the next delivery step for one that an agent has not acknowledged. Pure.

A message stays in the agent's inbox until there is evidence that it was read: a hook of the program took it, the agent
ran `liza ready`, or its output has the acknowledgment. If typing it fails, it is written into the brief.

| priority | program with hooks or a terminal | runtime with a stream |
|---|---|---|
| system | the next hook that can carry a text, else the next turn | at once; it adds it at the next edge of a turn |
| urgent | as system | at once; it interrupts the turn |
| normal | the end or the beginning of a turn | one at a time, while the run waits for a prompt |
| low | as normal, but never at the end of a turn: it prolongs none | as normal, after all others |

A low message that is not acknowledged is no alarm for a person.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from enum import StrEnum

from liza.model.configuration import Delivery
from liza.model.value_classes import AwareDatetime, FrozenStruct, Value, replace
from liza.programs.rules.lifecycle_rules import WAITING_STATES, LifecycleEvent

OFFERED = 20.0  # seconds for which a message that a hook took is not typed; programs wait that long for a hook


NOTE_SOURCE = "note"
NOTICE_SOURCE = "brief"
"""Source of Liza's notices that the brief has new messages."""
LIZA = "liza"
"""Sender of the messages of Liza itself."""


class MessageStage(StrEnum):
    """Delivery stage of a message: waiting, written into the brief, or reported to the person as not delivered."""

    QUEUED = "queued"
    FILED = "filed"
    TOLD = "told"


class DeliveryEvent(StrEnum):
    """What happened to a message."""

    ATTEMPTED = "attempted"
    """It was offered or typed, or its delivery began."""
    SUCCEEDED = "succeeded"
    """It was acknowledged."""
    ESCALATED = "escalated"
    """It was written into the brief."""
    FAILED = "failed"
    """The attempt did not reach the program; with the channel ``person``: nothing acknowledged it, and a person was
    told."""


class MessageChannel(StrEnum):
    """The way that a message took."""

    HOOK = "hook"
    TERMINAL = "terminal"
    STREAM = "stream"
    ACP = "acp"
    BRIEF = "brief"
    COMMAND = "command"
    """A command of the agent printed it."""
    PERSON = "person"


class Message(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A message for an agent, also called a prompt.

    ``priority`` is a PromptPriority. ``source`` is the kind of the sender, ``task`` the task that it is about.
    ``attempts`` counts the delivery tries, ``tried`` is the time of the last one, ``carried`` whether it was seen to
    arrive.
    """

    id: str
    priority: str
    text: str
    sender: str
    created: AwareDatetime
    source: str = NOTE_SOURCE
    task: str | None = None
    stage: MessageStage = MessageStage.QUEUED
    attempts: int = 0
    tried: AwareDatetime | None = None
    carried: bool = False
    run: str | None = None
    typing: bool = False
    """Whether it was typed into the terminal of ``run``. Hooks of that run then do not deliver it again."""
    offered: AwareDatetime | None = None
    """When a hook took it. It is not typed for OFFERED seconds, because the hook may report the delivery late."""
    acknowledged: AwareDatetime | None = None
    by: str | None = None

    @property
    def is_started(self) -> bool:
        """Whether its delivery has begun."""
        return self.attempts > 0 or self.stage is not MessageStage.QUEUED

    @property
    def is_notice(self) -> bool:
        """Whether it only says that the brief has new messages: a channel with their text delivers none."""
        return self.source == NOTICE_SOURCE


class DeliveryChannels(Value):
    """Ways to reach the agent's session now.

    ``has_hooks``: its hooks take messages at the start and end of a turn. ``has_terminal``: text can be typed once the
    program waits for input.
    """

    run: str
    has_hooks: bool = False
    has_terminal: bool = False
    has_stream: bool = False
    """Whether its runtime takes messages from the stream of the run."""
    in_turn: bool = False
    """Whether a turn is under way."""


class TypeMessage(Value):
    """Wait until the program accepts input, type the message and check that it arrived.

    If the program accepts no input within ``readiness_timeout``, that counts as a try.
    """

    message: Message


class PutInBrief(Value):
    """Write these messages into the brief. ``is_announced``: then type a notice, because the program has read its brief
    already. Without a terminal there is no way to tell it: a hook has the text itself."""

    messages: tuple[Message, ...]
    is_announced: bool = False


class RefreshBrief(Value):
    """Write the brief again: it quotes messages that were read."""


class DropNotices(Value):
    """Withdraw notices that cannot be typed, or that announce nothing any more."""

    messages: tuple[Message, ...]


class TellPerson(Value):
    """Tell the person that these messages were not acknowledged."""

    messages: tuple[Message, ...]


class TryLater(Value):
    """Do nothing for ``seconds``; None: until the next event."""

    why: str
    seconds: float | None = None


DeliveryStep = TypeMessage | PutInBrief | RefreshBrief | DropNotices | TellPerson | TryLater


def sort_unacknowledged(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the unacknowledged messages, by priority and then age."""
    waiting = [message for message in messages if message.acknowledged is None]
    return tuple(sorted(waiting, key=_sort_key))


def _sort_key(message: Message) -> tuple[int, datetime, int, str]:
    return PRIORITIES.index(PromptPriority(message.priority)), message.created, *age_key(message.id)


def age_key(name: str) -> tuple[int, str]:
    """Return the sort key of ids of one second, the oldest first.

    Numbers of ids have three digits or more: the shorter id is the older one. ``TIME-NUMBER-MARK-LETTER`` has the mark
    of a sender's key, which is not counted.
    """
    parts = name.split("-")
    return len(name) - (len(parts[2]) + 1 if len(parts) == 4 else 0), name


def list_quotable(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages that a brief or a hook can contain: all but notices."""
    return tuple(message for message in messages if not message.is_notice)


def next_step(
    messages: Sequence[Message],
    channels: DeliveryChannels | None,
    now: datetime,
    delivery: Delivery,
    quoted: Collection[str] = (),
) -> DeliveryStep:
    """Return the step for the first message that needs one. None ``channels``: no session runs. ``quoted``: the ids of
    messages in the brief of the session.

    A waiting message does not delay those behind it, except at a terminal: only one message is typed at a time. All
    messages that go into the brief go there in one step, and a person is told of all that are due at once.
    """
    notices = tuple(message for message in messages if message.is_notice and message.acknowledged is None)
    if notices and not _has_unread_in_brief(messages):
        return DropNotices(notices)
    step = _next_delivery(messages, channels, now, delivery)
    pending = {message.id for message in messages if message.acknowledged is None}
    is_stale = channels is not None and any(name not in pending for name in quoted)
    return RefreshBrief() if is_stale and isinstance(step, TryLater) else step


def _has_unread_in_brief(messages: Sequence[Message]) -> bool:
    return any(message.stage is not MessageStage.QUEUED and message.acknowledged is None for message in messages)


def _next_delivery(
    messages: Sequence[Message], channels: DeliveryChannels | None, now: datetime, delivery: Delivery
) -> DeliveryStep:
    waits: list[TryLater] = []
    waiting = [message for message in sort_unacknowledged(messages) if message.stage is not MessageStage.TOLD]
    for message in waiting:
        if channels is None:
            return TryLater("no session runs: it goes into the next brief")
        step = _step(message, channels, now, delivery)
        if isinstance(step, TellPerson):
            rest = _seconds_to_next_alarm(messages, now, delivery)
            step = TryLater("a person was told of others a moment ago", rest) if rest > 0 else step
        if isinstance(step, PutInBrief | TellPerson):
            steps = [_step(each, channels, now, delivery) for each in waiting]
            alike = tuple(each for each, other in zip(waiting, steps, strict=True) if type(other) is type(step))
            return replace(step, messages=alike)
        if not isinstance(step, TryLater):
            return step
        waits.append(step)
        if channels.has_terminal and message.stage is MessageStage.QUEUED:
            break
    return min(waits, key=_delay_of, default=TryLater("nothing waits"))


def describe_delivery(priority: PromptPriority, channels: DeliveryChannels) -> str:
    """Return when and how the session of ``channels`` gets a message that was queued now."""
    if channels.has_stream and not channels.has_terminal:
        return {
            PromptPriority.SYSTEM: f"{channels.run} gets it at the next edge of its turn",
            PromptPriority.URGENT: f"{channels.run} gets it now; that interrupts its turn",
            PromptPriority.NORMAL: f"{channels.run} gets it when its turn is over",
            PromptPriority.LOW: f"{channels.run} gets it when it is idle and nothing else waits",
        }[priority]
    at = {
        PromptPriority.NORMAL: "the end of its turn",
        PromptPriority.LOW: "the beginning of a turn or after a tool",
    }.get(priority, "its next tool call or the end of its turn")
    if channels.has_hooks:
        way = f"a hook of {channels.run} takes it at {at}"
        way += ", or it is typed in its terminal" if channels.has_terminal else ""
    elif channels.has_terminal:
        way = f"it is typed in the terminal of {channels.run} when its program waits for input"
    else:
        way = f"{channels.run} has no terminal and no hook of its program has run, so its brief contains it"
    return f"{way}; its turn cannot be interrupted" if priority is PromptPriority.URGENT else way


def left_to_hook(message: Message, now: datetime) -> float:
    """Return the seconds in which a hook may still deliver the message. Typing it now would deliver it twice."""
    return 0.0 if message.offered is None else OFFERED - abs((now - message.offered).total_seconds())


def format_typed(message: Message, delivery: Delivery, liza: str = "liza") -> str:
    """Return the text to type: sender and request for acknowledgment, then the message.

    The message comes last because its end identifies it on the screen. A message of Liza itself is typed unchanged.
    ``liza`` is the command as a shell of the session finds it.
    """
    if message.sender == LIZA:
        return message.text
    asks = f" (to show that you read it, say: {liza} ready)" if delivery.require_acknowledgment else ""
    return f"MESSAGE from {message.sender}{asks}: {message.text}"


def _delay_of(wait: TryLater) -> float:
    return float("inf") if wait.seconds is None else wait.seconds


def _step(message: Message, channels: DeliveryChannels, now: datetime, delivery: Delivery) -> DeliveryStep:
    if message.stage is MessageStage.FILED:
        left = _seconds_left(message, now, _alarm_delay(delivery))
        if left > 0:
            return TryLater("it is in the brief", left)
        is_told = delivery.send_notification_on_failure and message.priority != PromptPriority.LOW
        return TellPerson((message,)) if is_told else TryLater("it is in the brief")
    if channels.has_stream and not channels.has_terminal:
        return TryLater("its runtime takes it from its stream")
    rest = _seconds_left(message, now, _retry_delay(message, delivery))
    if rest > 0:
        return TryLater(
            "waits for an answer" if message.carried else "the last try failed; waits for the next one", rest
        )
    if message.attempts >= delivery.file_fallback_after_attempts or message.carried:
        # A message that was seen to arrive is not typed again: it would be read twice.
        return DropNotices((message,)) if message.is_notice else PutInBrief((message,), channels.has_terminal)
    if channels.in_turn and message.priority == PromptPriority.LOW:
        return TryLater("it waits until the agent is idle")
    if channels.has_terminal and channels.has_hooks and channels.in_turn:
        # Prefer the hook: it delivers the whole text, also while the program is working.
        left = delivery.readiness_timeout - _seconds_since_try(message, now)
        if left > 0 and not message.attempts:
            return TryLater("its hook takes it while the turn lasts", left)
    if channels.has_terminal:
        left = left_to_hook(message, now)
        return TypeMessage(message) if left <= 0 else TryLater("a hook has just taken it", left)
    return TryLater("its hook takes it at the end of the turn") if channels.has_hooks else PutInBrief((message,))


def _alarm_delay(delivery: Delivery) -> float:
    """Return the seconds that a message is in the brief before a person is told, and between two such alarms."""
    return delivery.retry_backoffs[-1] if delivery.retry_backoffs else delivery.acknowledgment_timeout


def _seconds_to_next_alarm(messages: Sequence[Message], now: datetime, delivery: Delivery) -> float:
    """Return the seconds until a person may be told of further messages: each alarm counts those that came since."""
    alarms = [_seconds_since_try(message, now) for message in messages if message.stage is MessageStage.TOLD]
    return _alarm_delay(delivery) - min(alarms, default=float("inf"))


def _retry_delay(message: Message, delivery: Delivery) -> float:
    """Return the pause between tries in seconds; at least ``acknowledgment_timeout`` if the last one arrived."""
    if message.attempts == 0:
        return 0.0
    offs = delivery.retry_backoffs or (0.0,)
    pause = offs[min(message.attempts, len(offs)) - 1]
    return max(pause, delivery.acknowledgment_timeout) if message.carried else pause


def _seconds_left(message: Message, now: datetime, seconds: float) -> float:
    return (
        seconds - _seconds_since_try(message, now) if message.attempts or message.stage is MessageStage.FILED else 0.0
    )


def _seconds_since_try(message: Message, now: datetime) -> float:
    """Return the seconds since the last try or the creation. abs(): a clock set back must not delay it for ever."""
    return abs((now - (message.tried or message.created)).total_seconds())


MAX_PENDING = 1000
"""Maximum number of prompts that an agent has not read. Messages of Liza itself are stored beyond it."""


class PromptPriority(StrEnum):
    """When a prompt reaches the model: ``system`` at the next edge of a turn, ``urgent`` at once, by interrupting the
    turn, ``normal`` when its turn is over, ``low`` when it is idle and nothing else waits."""

    SYSTEM = "system"
    URGENT = "urgent"
    NORMAL = "normal"
    LOW = "low"


PRIORITIES = tuple(PromptPriority)
"""The priorities in the order of delivery."""
PRIORITIES_OF_0_1_0 = {"startup": PromptPriority.SYSTEM}
"""Priorities that only files of version 0.1.0 have."""
DURING_TURN = frozenset({PromptPriority.SYSTEM, PromptPriority.URGENT})
"""Priorities that are delivered while a turn is under way."""
AT_TURN_END = DURING_TURN | {PromptPriority.NORMAL}
"""Priorities that make a program go on at the end of its turn."""


def may_have_priority(name: str, priorities: frozenset[PromptPriority]) -> bool:
    """Return whether a message with this id may have one of the priorities; ids of version 0.1.0 do not tell."""
    letter = name[-1:] if name[-2:-1] == "-" else ""
    return not any(priority[0] == letter for priority in PRIORITIES if priority not in priorities)


_ENDING_STATES = frozenset({LifecycleEvent.STOPPING, LifecycleEvent.STOPPED})


def select_for_stream(
    pending: Sequence[Message], delivered: Collection[str], state: LifecycleEvent | None
) -> tuple[Message, ...]:
    """Return the prompts to deliver now, of those in ``pending`` (in order) that are not ``delivered`` yet.

    ``state``: the state that the runtime reported, None before its first report. A normal prompt waits until the one
    delivered before it is acknowledged, so that a runtime never has to queue.
    """
    if state in _ENDING_STATES:
        return ()
    fresh = [prompt for prompt in pending if prompt.id not in delivered]
    selected = [prompt for prompt in fresh if prompt.priority in DURING_TURN]
    is_waiting = state is None or state in WAITING_STATES
    has_open = any(prompt.id in delivered and prompt.priority not in DURING_TURN for prompt in pending)
    if is_waiting and not has_open:
        selected += [prompt for prompt in fresh if prompt.priority not in DURING_TURN][:1]
    return tuple(selected)


def list_unreceived(delivered: Sequence[str], last_received: str | None) -> tuple[str, ...]:
    """Return the delivered prompts that a runtime has to get again after it reconnected.

    ``last_received`` is the last one that it has got, None if it remembers none. An id that was not delivered means the
    same: to deliver twice what is not acknowledged is better than not to deliver it.
    """
    if last_received is None or last_received not in delivered:
        return tuple(delivered)
    return tuple(delivered[delivered.index(last_received) + 1 :])
