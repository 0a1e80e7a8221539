"""Prompts of a run: from the queue to the stream of its runtime, with real files, crashes and many processes."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.api.prompts import AcknowledgeRequest, PromptMetadata, PromptRequest, acknowledge_prompts, submit_prompt
from liza.briefs import inbox
from liza.briefs.prompt_stream import PromptStream
from liza.briefs.rules import message_rules
from liza.briefs.rules.message_rules import PromptPriority
from liza.crew.crew import Crew
from liza.model.errors import QueueFull, RunIsOver, UsageError
from liza.model.paths import Paths
from liza.model.session_ends import StopReason
from liza.programs.session.run_directory import RunDir, RunRecord, Turn, TurnSource
from tests.conftest import FakeClock

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def crew(tmp_path: Path, clock: FakeClock) -> Crew:
    (tmp_path / ".liza").mkdir()
    return Crew(Paths(tmp_path), clock)


@pytest.fixture
def run(crew: Crew) -> RunDir:
    directory = crew.run_dir("coder-1.1")
    directory.create(RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=NOW, task="task-1"))
    return directory


def report(run: RunDir, phase: str) -> None:
    run.write_turn(Turn(time=NOW, phase=phase, source=TurnSource.API))


def submit(crew: Crew, text: str, priority: str = "normal", by: str = "human:ann", **more: object) -> str:
    request = PromptRequest(run_id="coder-1.1", content=text, priority=PromptPriority(priority), **more)  # type: ignore[arg-type]
    return submit_prompt(crew, by, request).id


def sent(stream: PromptStream) -> list[str]:
    return [message.text for message in stream.next_prompts(NOW)]


def acknowledge(run: RunDir, *names: str) -> int:
    return acknowledge_prompts(run, AcknowledgeRequest(run_id=run.run, ids=names), NOW).acknowledged


def test_an_accepted_prompt_returns_its_position_and_event_name(crew: Crew, run: RunDir) -> None:
    report(run, "idle")
    request = PromptRequest(run_id="coder-1.1", content="a", metadata=PromptMetadata(sender="ann", task_id="t1"))
    first = submit_prompt(crew, "human:bob", request)
    assert (first.accepted, first.queued, first.position) == (True, False, 0)
    second = submit_prompt(crew, "coder-2.1", request)
    assert (second.queued, second.position) == (True, 1)
    urgent = submit_prompt(crew, "human:bob", msgspec.structs.replace(request, priority=PromptPriority.URGENT))
    assert urgent.position == 0
    stored = inbox.list_pending(crew.paths, "coder-1")
    assert [(message.id, message.sender, message.task) for message in stored] == [
        (urgent.id, "ann", "t1"),
        (first.id, "ann", "t1"),
        (second.id, "coder-2.1", "t1"),
    ]


@given(st.lists(st.tuples(st.sampled_from(PromptPriority), st.integers(0, 3)), max_size=15))
def test_the_position_is_that_in_the_order_of_delivery(
    tmp_path_factory: pytest.TempPathFactory, prompts: list[tuple[PromptPriority, int]]
) -> None:
    paths = Paths(tmp_path_factory.mktemp("crew"))
    for priority, second in prompts:
        inbox.queue_message(paths, "coder-1", "a", "human:ann", NOW + timedelta(seconds=second), priority)
    ordered = [message.id for message in inbox.list_pending(paths, "coder-1")]
    names = inbox.list_names(paths, "coder-1")
    assert [inbox.count_ahead(names, name) for name in ordered] == list(range(len(prompts)))


def test_messages_come_only_from_liza_and_never_reach_ended_runs(crew: Crew, run: RunDir) -> None:
    with pytest.raises(UsageError, match=r"metadata\.from"):
        submit(crew, "a", metadata=PromptMetadata(sender="liza"))
    run.mark_concluded("finished: done")
    with pytest.raises(RunIsOver):
        submit(crew, "a")


def test_a_stream_delivers_by_priority_and_never_twice_after_reconnecting(crew: Crew, run: RunDir) -> None:
    stream = PromptStream(run)
    report(run, "busy")
    assert sent(stream) == []
    normal, _ = submit(crew, "n1"), submit(crew, "n2")
    system, urgent = submit(crew, "s", "system"), submit(crew, "u", "urgent")
    assert sent(stream) == ["s", "u"]
    assert sent(stream) == []
    assert sent(PromptStream(run, system)) == ["u"]
    assert sent(PromptStream(run, urgent)) == []
    report(run, "idle")
    assert sent(PromptStream(run, urgent)) == ["n1"]
    assert acknowledge(run, system, system, "unknown", "../../x") == 1
    assert sent(PromptStream(run)) == ["u", "n1"], "a worker that remembers nothing gets what is open"
    assert acknowledge(run, urgent, normal) == 2
    assert sent(stream) == ["n2"]


def test_messages_survive_disconnection_and_the_end_of_the_session(crew: Crew, run: RunDir) -> None:
    submit(crew, "a")
    run.write_stop(NOW, StopReason.STOP)
    assert sent(PromptStream(run)) == []
    following = crew.run_dir("coder-1.2")
    following.create(RunRecord(agent="coder-1", run="coder-1.2", kind="work", started=NOW, task="task-1"))
    assert sent(PromptStream(following)) == ["a"]


def test_hooks_and_the_stream_never_take_the_same_prompt(crew: Crew, run: RunDir) -> None:
    submit(crew, "a", "urgent")
    (taken,) = inbox.claim_for_hook(crew.paths, "coder-1", "coder-1.1", NOW, priorities=message_rules.DURING_TURN)
    stream = PromptStream(run)
    assert sent(stream) == []
    assert [message.id for message in stream.next_prompts(NOW + timedelta(minutes=1))] == [taken.id]


def test_a_prompt_recorded_before_a_kill_is_delivered_afterwards(crew: Crew, run: RunDir) -> None:
    name = submit(crew, "a")
    code = (
        "from pathlib import Path; from datetime import datetime, UTC; from liza.model.paths import Paths\n"
        "from liza.programs.session.run_directory import RunDir\n"
        "from liza.briefs.prompt_stream import PromptStream\n"
        f"PromptStream(RunDir(Paths(Path({str(crew.paths.root)!r})), 'coder-1.1')).next_prompts(datetime.now(UTC))"
    )
    env = {**os.environ, "LIZA_FAULT": "stream.recorded"}
    assert subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode == -9
    assert sent(PromptStream(run)) == ["a"]
    with (run.path / "delivered.txt").open("a") as file:
        file.write("2026")
    other = submit(crew, "b", "urgent")
    assert sent(PromptStream(run, name)) == ["b"], "a torn line names no prompt, and does not damage the next one"
    assert sent(PromptStream(run, other)) == []


def test_prompts_over_the_limit_are_refused_except_those_of_liza(
    crew: Crew, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "MAX_PENDING", 20)
    for number in range(20):
        submit(crew, str(number))
    with pytest.raises(QueueFull, match="20 messages that it has not read"):
        submit(crew, "one more")
    inbox.queue_message(crew.paths, "coder-1", "warning", "liza", NOW)
    assert len(inbox.list_pending(crew.paths, "coder-1")) == 21
    assert message_rules.MAX_PENDING == 1000


def test_an_inbox_of_the_version_before_is_read(crew: Crew, run: RunDir) -> None:
    directory = inbox.inbox_path(crew.paths, "coder-1")
    inbox.queue_message(crew.paths, "coder-1", "new", "human:ann", NOW)
    for name, priority in (("20251231T000000-000", "startup"), ("20251231T000000-001", "low")):
        record = {
            "id": name,
            "priority": priority,
            "text": priority,
            "sender": "liza",
            "created": "2025-12-31T00:00:00Z",
        }
        (directory / f"{name}.json").write_bytes(msgspec.json.encode(record))
    pending = inbox.list_pending(crew.paths, "coder-1")
    assert [(message.text, message.priority) for message in pending] == [
        ("startup", "system"),
        ("new", "normal"),
        ("low", "low"),
    ]
    assert inbox.list_unreadable(crew.paths, "coder-1") == ()
    assert [
        message.text
        for message in inbox.claim_for_hook(
            crew.paths, "coder-1", "coder-1.1", NOW, priorities=message_rules.DURING_TURN
        )
    ] == ["startup"]


def _work(root: Path, number: int) -> None:
    crew = Crew(Paths(root), FakeClock())
    run = crew.run_dir("coder-1.1")
    for count in range(15):
        submit(crew, f"{number}-{count}", ("system", "urgent", "normal")[count % 3])
        if count % 5 == number:
            acknowledge(run, *(message.id for message in PromptStream(run).next_prompts(NOW)[:1]))


@pytest.mark.campaign
def test_many_processes_submitting_prompts_lose_and_repeat_none(crew: Crew, run: RunDir) -> None:
    report(run, "idle")
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        pool.starmap(_work, [(crew.paths.root, number) for number in range(3)])
    stream = PromptStream(run)
    while prompts := stream.next_prompts(NOW):
        acknowledge(run, *(message.id for message in prompts))
    done = inbox.list_done(crew.paths, "coder-1")
    assert inbox.list_pending(crew.paths, "coder-1") == ()
    assert sorted(message.text for message in done) == sorted(f"{n}-{count}" for n in range(3) for count in range(15))


def test_a_repeated_submission_stores_a_prompt_once_even_after_reading(crew: Crew, run: RunDir) -> None:
    report(run, "idle")
    first = submit(crew, "only once", key="k-1")
    again = Crew(crew.paths, crew.clock)  # as after a restart of the server
    assert submit(again, "only once", key="k-1") == first
    assert inbox.list_names(crew.paths, "coder-1") == (first,)
    assert acknowledge(run, first) == 1
    request = PromptRequest(run_id="coder-1.1", content="only once", key="k-1")
    answer = submit_prompt(again, "human:ann", request)
    assert (answer.id, answer.queued, answer.position) == (first, False, 0)
    assert inbox.list_names(crew.paths, "coder-1") == ()
    with pytest.raises(UsageError, match="another prompt"):
        submit(crew, "something else", key="k-1")
    assert submit(crew, "only once", key="k-1", by="human:bob") != first


def test_prompts_with_and_without_a_key_keep_their_order(crew: Crew, run: RunDir) -> None:
    names = [submit(crew, str(number), **({"key": f"k{number}"} if number % 2 else {})) for number in range(5)]
    assert [message.text for message in inbox.list_pending(crew.paths, "coder-1")] == ["0", "1", "2", "3", "4"]
    assert [inbox.count_ahead(names, name) for name in names] == [0, 1, 2, 3, 4]
