"""Which prompts a runtime gets now on the stream of its run. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol, TypeVar

from liza.rules.worker_api.lifecycle_rules import WAITING_STATES, LifecycleEvent
from liza.rules.worker_api.prompt_rules import DURING_TURN

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
