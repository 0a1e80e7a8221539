"""Decide which prompts of a run are sent on its stream now, and in which order. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from liza.rules.sessions.message_rules import Message

WAITING_PHASES: Final = ("ready", "idle")
"""Phases in which the runtime waits for a prompt."""
BUSY_PHASE: Final = "busy"
_INTERRUPTING = ("startup", "urgent")
_AT_TURN_EDGE = "system"


def due_prompts(
    waiting: Sequence[Message], sent: Collection[str], phase: str | None, exclude: Collection[str] = ()
) -> tuple[Message, ...]:
    """Return the prompts to send now, the most urgent first.

    ``waiting`` are the prompts of the inbox without an acknowledgment, ``sent`` the ids that this stream has sent,
    ``exclude`` those that the runtime has received before. ``phase`` is what the runtime reported last; None: nothing.

    An urgent prompt is sent at once, a system prompt unless a turn is under way, and a normal one only to a runtime
    that waits for it: one at a time, the next when the last was acknowledged. A runtime that has reported nothing gets
    no normal prompt.
    """
    fresh = [message for message in waiting if message.id not in sent and message.id not in exclude]
    urgent = [message for message in fresh if message.priority in _INTERRUPTING]
    system = [message for message in fresh if message.priority == _AT_TURN_EDGE and phase != BUSY_PHASE]
    ordinary = [message for message in fresh if message.priority not in (*_INTERRUPTING, _AT_TURN_EDGE)]
    is_one_open = any(
        message.priority not in (*_INTERRUPTING, _AT_TURN_EDGE) and message.id not in {entry.id for entry in fresh}
        for message in waiting
    )
    normal = ordinary[:1] if phase in WAITING_PHASES and not is_one_open else []
    return (*urgent, *system, *normal)
