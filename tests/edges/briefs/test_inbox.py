"""An inbox loses nothing: not to a crash between handing over and saying so, not to two at once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from liza.briefs import delivery_log, inbox
from liza.briefs.inbox import delivery_statistics
from liza.briefs.note import send_note
from liza.briefs.rules.message_rules import DeliveryEvent, MessageChannel, MessageStage
from liza.crew.crew import Crew
from liza.model.errors import LizaError, NotRegularFile, UsageError
from liza.model.model import Agent
from liza.model.paths import Paths
from tests.campaign import forks
from tests.campaign.small_board import FIRST
from tests.conftest import FakeClock

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path)


def test_a_message_waits_until_read_and_records_its_channel(paths: Paths) -> None:
    one = inbox.queue_message(paths, "coder-1", "use the fonts in assets/", "human:ann", NOW, "urgent")
    assert inbox.list_pending(paths, "coder-1") == (one,)
    assert inbox.format_messages((one,)) == "MESSAGE from human:ann: use the fonts in assets/\n"
    inbox.acknowledge(paths, "coder-1", (one.id,), "coder-1.1", "hook idle", NOW, MessageChannel.HOOK)
    assert inbox.list_pending(paths, "coder-1") == ()
    (read,) = inbox.list_done(paths, "coder-1")
    assert (read.by, read.run, read.acknowledged, read.attempts) == ("hook idle", "coder-1.1", NOW, 1)
    assert inbox.list_pending(paths, "coder-2") == ()


def test_a_killed_acknowledgement_repeats_a_message_once_at_most(paths: Paths) -> None:
    one = inbox.queue_message(paths, "coder-1", "a", "human", NOW)
    said = (
        "from pathlib import Path; from datetime import datetime, UTC; from liza.briefs import inbox;"
        "from liza.briefs.rules.message_rules import MessageChannel;"
        "from liza.model.paths import Paths;"
        f"inbox.acknowledge(Paths(Path({str(paths.root)!r})), 'coder-1', ({one.id!r},), 'coder-1.1', 'hook',"
        " datetime(2026, 1, 1, 12, tzinfo=UTC), MessageChannel.HOOK)"
    )
    env = {**os.environ, "LIZA_FAULT": "inbox.acknowledged"}
    assert subprocess.run([sys.executable, "-c", said], env=env, check=False).returncode == -9
    assert len(inbox.list_done(paths, "coder-1")) == 1
    inbox.acknowledge(paths, "coder-1", (one.id,), "coder-1.1", "hook", NOW, MessageChannel.HOOK)
    assert inbox.list_pending(paths, "coder-1") == ()
    assert [read.text for read in inbox.list_done(paths, "coder-1")] == ["a"]


def test_concurrent_senders_deliver_every_message(paths: Paths) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: inbox.queue_message(paths, "coder-1", str(number), "human", NOW), range(64)))
    assert {one.text for one in inbox.list_pending(paths, "coder-1")} == {str(number) for number in range(64)}


def test_counting_tries_does_not_restore_a_message_read_meanwhile(paths: Paths) -> None:
    one = inbox.queue_message(paths, "coder-1", "a", "human", NOW)
    inbox.acknowledge(paths, "coder-1", (one.id,), "coder-1.1", "liza ready", NOW, MessageChannel.COMMAND)
    inbox.update_message(paths, "coder-1", replace(one, attempts=2))
    assert inbox.list_pending(paths, "coder-1") == ()


def test_the_log_has_each_delivery_step_with_try_and_channel(paths: Paths) -> None:
    one = inbox.queue_message(paths, "coder-1", "a", "human", NOW)
    inbox.claim_for_hook(paths, "coder-1", "coder-1.1", NOW)
    (offered,) = inbox.claim_for_hook(paths, "coder-1", "coder-1.1", NOW)
    inbox.acknowledge(paths, "coder-1", (one.id,), "coder-1.1", "hook Stop", NOW, MessageChannel.HOOK)
    inbox.acknowledge(paths, "coder-1", (one.id,), "coder-1.1", "hook Stop", NOW, MessageChannel.HOOK)
    entries = delivery_log.read_entries(paths, "coder-1")
    assert {(entry.message, entry.run, entry.channel) for entry in entries} == {(one.id, "coder-1.1", "hook")}
    assert [(entry.event, entry.attempt, entry.detail) for entry in entries] == [
        (DeliveryEvent.ATTEMPTED, 1, ""),
        (DeliveryEvent.ATTEMPTED, 2, ""),
        (DeliveryEvent.SUCCEEDED, 2, "hook Stop"),
    ]
    assert offered.attempts == 2


def test_a_delivery_log_is_trimmed_and_read_again(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_log, "MAX_SIZE", 2000)
    monkeypatch.setattr(delivery_log, "SIZE_AFTER_CUT", 1000)
    one = inbox.queue_message(paths, "coder-1", "a", "human", NOW)
    for _ in range(30):
        inbox.claim_for_hook(paths, "coder-1", "coder-1.1", NOW)
    entries = delivery_log.read_entries(paths, "coder-1")
    assert [entry.attempt for entry in entries] == list(range(31 - len(entries), 31))
    assert 0 < len(entries) < 30
    path = delivery_log.log_path(paths, "coder-1")
    path.write_bytes(path.read_bytes() + b'{"half of a line": ')
    assert delivery_log.read_entries(paths, "coder-1") == entries
    path.write_bytes(b"no json\n")
    with pytest.raises(LizaError, match=r"deliveries\.jsonl:1 is no event of a delivery"):
        delivery_log.read_entries(paths, "coder-1")
    assert one.id


@pytest.mark.parametrize("plant", [os.mkfifo, os.mkdir])
def test_an_unwritable_delivery_log_stops_no_delivery(paths: Paths, plant: Callable[[Path], None]) -> None:
    one = inbox.queue_message(paths, "coder-1", "a", "human", NOW)
    plant(delivery_log.log_path(paths, "coder-1"))
    assert [message.id for message in inbox.claim_for_hook(paths, "coder-1", "coder-1.1", NOW)] == [one.id]
    inbox.acknowledge(paths, "coder-1", (one.id,), "coder-1.1", "hook Stop", NOW, MessageChannel.HOOK)
    assert [message.id for message in inbox.list_done(paths, "coder-1")] == [one.id]
    with pytest.raises((NotRegularFile, OSError)):
        delivery_log.read_entries(paths, "coder-1")


def test_the_averages_count_what_was_read(paths: Paths, clock: FakeClock) -> None:
    crew = Crew(paths, clock)
    crew.board.create(FIRST)
    empty = delivery_statistics(paths, ["coder-1"])
    assert (empty.average_attempts, empty.average_seconds, empty.median_seconds) == (None, None, None)
    for tries, seconds in ((1, 1), (1, 2), (4, 9)):
        message = inbox.queue_message(paths, "coder-1", "a", "human", NOW)
        inbox.update_message(paths, "coder-1", replace(message, attempts=tries))
        then = NOW + timedelta(seconds=seconds)
        inbox.acknowledge(paths, "coder-1", (message.id,), "coder-1.1", "hook", then, MessageChannel.HOOK)
    found = delivery_statistics(paths, ["coder-1"])
    assert (found.average_attempts, found.average_seconds, found.median_seconds) == (2.0, 4.0, 2.0)


def test_words_that_are_none_are_refused(paths: Paths) -> None:
    with pytest.raises(UsageError, match="the message is empty"):
        inbox.queue_message(paths, "coder-1", "  ", "human", NOW)
    with pytest.raises(UsageError, match="unknown priority 'soon'"):
        inbox.queue_message(paths, "coder-1", "a", "human", NOW, "soon")


def test_messages_to_begin_an_ended_session_are_taken_back(paths: Paths) -> None:
    inbox.withdraw_messages(paths, "coder-1", "liza")
    inbox.queue_message(paths, "coder-1", "First run: liza ready", "liza", NOW, "system")
    note = inbox.queue_message(paths, "coder-1", "use the fonts in assets/", "human", NOW, "urgent")
    inbox.withdraw_messages(paths, "coder-1", "liza")
    assert inbox.list_pending(paths, "coder-1") == (note,)


def test_escalated_or_failed_messages_stay_counted_once_read(paths: Paths, clock: FakeClock) -> None:
    crew = Crew(paths, clock)
    crew.board.create(FIRST)

    def put(sender: str, **came: object) -> str:
        message = inbox.queue_message(paths, "coder-1", "a", sender, NOW)
        inbox.update_message(paths, "coder-1", replace(message, **came))
        return message.id

    def counts() -> tuple[int, ...]:
        found = delivery_statistics(paths, ["coder-1"])
        assert found.unreadable == ()
        return tuple(
            getattr(found, name) for name in ("attempted", "first_try", "escalated_to_brief", "failed", "waiting")
        )

    filed, told = put("human", stage=MessageStage.FILED), put("human", stage=MessageStage.TOLD, attempts=3)
    put("liza", stage=MessageStage.TOLD, attempts=3)
    put("liza")
    assert counts() == (3, 0, 3, 2, 4)
    inbox.acknowledge(paths, "coder-1", (filed, told), "coder-1.2", "liza ready", NOW, MessageChannel.COMMAND)
    assert counts() == (3, 0, 3, 2, 2)
    inbox.withdraw_messages(paths, "coder-1", "liza")
    assert counts() == (3, 0, 3, 2, 0)
    assert inbox.list_pending(paths, "coder-1") == ()


def test_agents_files_in_inbox_are_named_and_delay_no_message(paths: Paths, tmp_path: Path) -> None:
    one = inbox.queue_message(paths, "coder-1", "a", "human", NOW)
    good = inbox.queue_message(paths, "coder-1", "b", "human", NOW)
    place = paths.runs / "coder-1" / "inbox"
    whole = (place / f"{one.id}.json").read_text()
    for data in (
        whole.replace("normal", "vip"),
        whole.replace(one.id, "../../../x"),
        whole.replace("12:00:00Z", "12:00:00"),
        "\xff{",
        whole.replace('"text"', '"attempts":-100,"text"'),
        "[" * 5000,
    ):
        (place / f"{one.id}.json").write_bytes(data.encode("latin-1"))
        assert inbox.list_pending(paths, "coder-1") == (good,)
        assert [error.hint for error in inbox.list_unreadable(paths, "coder-1")], data
    (place / f"{one.id}.json").unlink()
    os.mkfifo(place / "z.json")
    assert inbox.list_pending(paths, "coder-1") == (good,)
    assert "is not a regular file" in str(inbox.list_unreadable(paths, "coder-1")[0])


def test_an_urgent_note_is_on_board_and_inbox_or_neither(tmp_path: Path, clock: FakeClock) -> None:
    crew = Crew(Paths(tmp_path), clock)
    crew.board.create(FIRST)
    with crew.change("coder-1", "start") as tx:
        tx.state = tx.state.with_agent("coder-1", Agent(role="coder", status="IDLE"))
    place = crew.paths.runs / "coder-1" / "inbox"
    place.parent.mkdir(parents=True)
    place.write_text("in the way")
    with pytest.raises((OSError, LizaError)):
        send_note(crew, "now", "coder-1")
    assert crew.board.read().human_notes == ()
    place.unlink()
    forks.arm("synced.next:full")
    try:
        with pytest.raises((OSError, LizaError)):
            send_note(crew, "now", "coder-1")
    finally:
        forks.arm()
    assert inbox.list_pending(crew.paths, "coder-1") == ()
    assert crew.board.read().human_notes == ()
    said = send_note(crew, "now", "coder-1")
    assert [one.text for one in inbox.list_pending(crew.paths, "coder-1")] == ["now"]
    assert [one.message for one in crew.board.read().human_notes] == ["now"]
    assert "it has no session now" in (said.next or "")
