"""Priorities of prompts. Pure. Commands of agents load this module, so it imports little.

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
from enum import StrEnum
from typing import Protocol, TypeVar

from liza.programs.rules.lifecycle_rules import WAITING_STATES, LifecycleEvent

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


class QueuedPrompt(Protocol):
    """What the selection needs of a prompt."""

    @property
    def id(self) -> str: ...

    @property
    def priority(self) -> str: ...


PromptT = TypeVar("PromptT", bound=QueuedPrompt)


def select_for_stream(
    pending: Sequence[PromptT], delivered: Collection[str], state: LifecycleEvent | None
) -> tuple[PromptT, ...]:
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
