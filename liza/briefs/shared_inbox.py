"""Messages to agents of a crew on several hosts. An inbox is on the host of the agent's supervisor.

A message for an agent of another host, or of none, waits on the server until the host of the agent takes it. It has one
id on its way, so an inbox gets it once.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from uuid import uuid4

import msgspec

from liza.board.shared_records import SharedMessage, SharedRecords
from liza.briefs import inbox
from liza.briefs.rules.message_rules import LIZA, MAX_PENDING, Message, PromptPriority
from liza.crew.crew import Crew
from liza.hosts import local_sessions
from liza.model.errors import QueueFull
from liza.model.value_classes import decodable


def send_message(
    crew: Crew, agent: str, text: str, sender: str, priority: PromptPriority, *, task: str | None = None
) -> Message:
    """Store a message in the inbox of an agent, or on the server if its supervisor is not here.

    Raises UsageError for an empty text, QueueFull, BoardUnavailable, OSError.
    """
    now, shared = crew.clock.now(), find_server(crew, agent)
    if shared is None:
        return inbox.queue_message(crew.paths, agent, text, sender, now, priority, task=task)
    inbox.check_text(text)
    waiting = shared.list_messages([agent])
    if len(waiting) >= MAX_PENDING:
        raise QueueFull(
            f"{len(waiting)} messages wait for the host of {agent}; the limit is {MAX_PENDING}", "liza host list"
        )
    message = Message(
        id=_new_id(now, len(waiting), priority), priority=priority, text=text, sender=sender, created=now, task=task
    )
    _post(shared, agent, message)
    return message


def withdraw_message(crew: Crew, agent: str, message: str) -> None:
    """Forget a message that was just sent. Raises BoardUnavailable, OSError."""
    shared = find_server(crew, agent)
    if shared is None:
        inbox.remove_message(crew.paths, agent, message)
    else:
        shared.remove_message(message)


def count_waiting(crew: Crew, agents: Iterable[str]) -> int:
    """Return how many messages for these agents wait for their hosts. Raises BoardUnavailable."""
    shared = crew.board.shared if crew.is_on_server else None
    return 0 if shared is None else len(shared.list_messages(agents))


def find_server(crew: Crew, agent: str) -> SharedRecords | None:
    """Return where messages for an agent wait if its supervisor is not here; None if its inbox is here."""
    shared = crew.board.shared if crew.is_on_server else None
    return None if shared is None or crew.is_supervised_here(agent) else shared


def deliver_messages(crew: Crew, shared: SharedRecords) -> None:
    """Bring what waits for agents of this host into their inboxes, and give back what waits here for others.

    Raises BoardUnavailable, LizaError, OSError.
    """
    here = local_sessions.list_supervised(crew.paths)
    if here:
        shared.take_messages(here, lambda message: _store(crew, message))
    for path in sorted(crew.paths.runs.glob("*/inbox")):
        agent = path.parent.name
        if agent not in here and inbox.list_names(crew.paths, agent) and crew.find_holder(agent):
            _give_back(crew, shared, agent)


def _store(crew: Crew, message: SharedMessage) -> None:
    inbox.store_message(crew.paths, message.agent, msgspec.json.decode(message.body, type=decodable(Message)))


def _give_back(crew: Crew, shared: SharedRecords, agent: str) -> None:
    """Post the pending messages for an agent that another host has; those of its former supervisor are dropped."""
    with inbox.lock_inbox(crew.paths, agent):
        for message in inbox.list_pending(crew.paths, agent):
            if message.sender != LIZA:
                _post(shared, agent, message)
            inbox.remove_message(crew.paths, agent, message.id)


def _post(shared: SharedRecords, agent: str, message: Message) -> None:
    shared.post_message(SharedMessage(message.id, agent, msgspec.json.encode(message).decode()))


def _new_id(now: datetime, number: int, priority: PromptPriority) -> str:
    """Return an id that no other host gives, in the form of those of an inbox. ``number`` orders those of a second."""
    return f"{now:%Y%m%dT%H%M%S}-{number:03d}-{uuid4().hex[:16]}-{priority[0]}"
