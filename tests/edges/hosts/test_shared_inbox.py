"""Messages to agents of other hosts: each reaches the inbox of its agent once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from uuid import UUID

import pytest

from liza.board.shared_records import SharedMessage, SharedRecords
from liza.briefs import inbox, shared_inbox
from liza.briefs.rules.message_rules import MessageChannel, PromptPriority
from liza.crew.crew import Crew, open_crew
from liza.hosts.agent_tie import open_table
from liza.model.errors import UsageError
from liza.system.locks import Lock
from tests.conftest import until
from tests.edges.hosts.conftest import MakeHost
from tests.edges.hosts_rig import HostRig

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
AGENT = "coder-1"


def crew_of(host: HostRig) -> Crew:
    """The crew as commands in the clone of a host have it."""
    return open_crew(host.paths.root)


def shared_of(crew: Crew) -> SharedRecords:
    """What the hosts of a crew share."""
    shared = crew.board.shared
    assert shared is not None
    return shared


def send(crew: Crew, text: str = "look again") -> str:
    """Send a message to the agent; its id."""
    return shared_inbox.send_message(crew, AGENT, text, "human:ann", PromptPriority.NORMAL).id


def pending(host: HostRig) -> list[str]:
    """The texts in the inbox of the agent on a host."""
    return [message.text for message in inbox.list_pending(host.paths, AGENT)]


@contextmanager
def supervise(host: HostRig) -> Iterator[None]:
    """Hold the lock of a supervisor of the agent on a host."""
    lock = Lock(host.paths.supervisor_lock(AGENT))
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def test_a_message_reaches_an_agent_of_another_host(make_host: MakeHost) -> None:
    sender, host = make_host("h1"), make_host("h2")
    host.start_and_wait()
    crew = crew_of(sender)
    with supervise(host):
        send(crew)
        until(lambda: pending(host) == ["look again"], "it is in the inbox")
        until(lambda: shared_inbox.count_waiting(crew, [AGENT]) == 0, "it does not wait any more")
    assert pending(sender) == []


def test_a_message_waits_until_a_host_has_its_agent(make_host: MakeHost) -> None:
    sender, host = make_host("h1"), make_host("h2")
    crew = crew_of(sender)
    send(crew, "one")
    send(crew, "two")
    assert shared_inbox.count_waiting(crew, [AGENT]) == 2
    with supervise(host):
        host.start_and_wait()
        until(lambda: pending(host) == ["one", "two"], "both are in the inbox")


def test_a_message_to_an_agent_of_this_host_waits_for_nothing(make_host: MakeHost) -> None:
    host = make_host("h1")
    with supervise(host):
        send(crew_of(host))
    assert pending(host) == ["look again"]


def test_a_message_is_read_once_after_a_crash(make_host: MakeHost) -> None:
    host = make_host("h1")
    crew = crew_of(host)
    shared, name = shared_of(crew), send(crew)

    def store_and_crash(message: SharedMessage) -> None:
        shared_inbox._store(crew, message)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shared.take_messages([AGENT], store_and_crash)
    assert pending(host) == ["look again"]
    inbox.acknowledge(host.paths, AGENT, (name,), "coder-1.1", "a test", NOW, MessageChannel.HOOK)
    with supervise(host):
        shared_inbox.deliver_messages(crew, shared)
    assert pending(host) == []
    assert shared_inbox.count_waiting(crew, [AGENT]) == 0


def test_a_withdrawn_message_reaches_no_host(make_host: MakeHost) -> None:
    host = make_host("h1")
    crew = crew_of(host)
    shared_inbox.withdraw_message(crew, AGENT, send(crew))
    assert shared_inbox.count_waiting(crew, [AGENT]) == 0


def test_an_empty_message_to_another_host_is_refused(make_host: MakeHost) -> None:
    with pytest.raises(UsageError, match="the message is empty"):
        send(crew_of(make_host("h1")), "  ")


def test_unread_messages_follow_an_agent_to_its_next_host(make_host: MakeHost) -> None:
    host, other = make_host("h1"), make_host("h2")
    with supervise(host):
        send(crew_of(host))
    lease = other.start_and_wait()
    host.start_and_wait()
    with supervise(other):
        take_agent(other, lease.incarnation)
        until(lambda: pending(other) == ["look again"], "it came with the agent")
    # The former host posts a message before it forgets it: for a moment both have it, under one id.
    until(lambda: pending(host) == [], "the former host has forgotten it")


def take_agent(host: HostRig, incarnation: UUID) -> None:
    """Record that the agent is on a host, as its supervisor does."""
    with open_table(host.address) as table:
        assert table.take_agent(AGENT, host.name, incarnation)
