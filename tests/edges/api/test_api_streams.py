"""Streams of runs: each prompt arrives once and none is lost, whatever readers, networks and servers do."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from liza.api import serve
from liza.api.calls import ServerFacts
from liza.briefs import inbox
from liza.briefs.rules.message_rules import LIZA
from liza.crew.crew import Crew
from liza.model.paths import Paths
from liza.system import file_growth
from liza.system.clock import SystemClock
from liza.view.agents import list_states
from tests.conftest import LONG, until
from tests.edges.api_worker import Api, Stream, Worker, now, serving


@pytest.fixture(scope="module")
def shared(module_world: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A server for the tests that do not end it; each has an agent of its own."""
    with serving(tmp_path_factory.mktemp("api")) as api:
        yield api


_numbers = itertools.count(1)


@pytest.fixture
def worker(shared: Api) -> Iterator[Worker]:
    made = shared.worker(f"coder-{next(_numbers)}.1")
    assert made.report("ready").status == 200
    yield made
    for stream in made.streams:
        stream.close()


def prompt(worker: Worker, content: str, priority: str = "system") -> str:
    """Queue a prompt as a person does; its id."""
    body = {"run_id": worker.run, "content": content, "priority": priority}
    reply = worker.api.post("/v1/prompt", body)
    assert reply.status == 200, reply
    return str(reply.data["id"])


def acknowledge(worker: Worker, *ids: str) -> int:
    return int(worker.post("/v1/acknowledge", {"run_id": worker.run, "ids": ids}).data["acknowledged"])


def test_a_stream_that_looked_before_changes_are_watched_looks_again(tmp_path: Path) -> None:
    (tmp_path / ".liza").mkdir()
    crew = Crew(Paths(tmp_path), SystemClock())
    process = serve._Process(crew, ServerFacts(list_states), 0, with_crew=False, starter=None)

    async def wait_until_woken() -> None:
        loop = asyncio.get_running_loop()

        def call_in_loop(function: Callable[..., None], *arguments: object) -> None:
            with suppress(RuntimeError):  # the test is over
                loop.call_soon_threadsafe(function, *arguments)

        with process._api.hub.subscribe("coder-1.1") as subscription:
            file_growth.wake_watchers(crew.paths, "coder-1")
            threading.Thread(target=process._watch, args=(call_in_loop,), daemon=True).start()
            await asyncio.wait_for(subscription.wake.wait(), LONG)

    asyncio.run(wait_until_woken())


def test_a_prompt_arrives_with_every_field_and_is_acknowledged_once(worker: Worker) -> None:
    stream = worker.stream()
    body = {
        "run_id": worker.run,
        "content": "Ünï\n\ncode",
        "source": "mail",
        "metadata": {"from": "bob", "task_id": "t"},
    }
    queued = worker.api.post("/v1/prompt", body).data
    [event] = stream.wait(1).events
    assert (queued["accepted"], queued["queued"], event["id"], event["event"]) == (True, False, queued["id"], "prompt")
    created = event["data"].pop("created")
    assert created
    assert event["data"] == {
        "id": queued["id"],
        "content": "Ünï\n\ncode",
        "priority": "normal",
        "source": "mail",
        "metadata": {"from": "bob", "task_id": "t"},
    }
    assert [acknowledge(worker, queued["id"], "unknown") for _ in range(2)] == [1, 0]


@pytest.mark.parametrize("sender", ["human:ann", LIZA])
def test_a_message_of_another_process_arrives_at_once(worker: Worker, sender: str) -> None:
    stream = worker.stream()
    inbox.queue_message(worker.api.paths, worker.agent, "commit now", sender, now(), "urgent")
    assert stream.wait(1).contents() == ["commit now"]
    assert stream.silences == 0


def test_urgent_prompts_wait_for_nothing_and_normal_ones_for_idle(worker: Worker) -> None:
    stream = worker.stream()
    worker.report("busy")
    prompt(worker, "first", "normal")
    second = prompt(worker, "second", "normal")
    prompt(worker, "now", "urgent")
    assert stream.wait(1).contents() == ["now"]
    worker.report("idle")
    stream.wait(2)
    assert stream.contents() == ["now", "first"]
    worker.report("busy")
    acknowledge(worker, *stream.ids())
    worker.report("idle")
    assert stream.wait(3).contents() == ["now", "first", "second"]
    assert stream.ids()[-1] == second


def test_a_reconnected_stream_repeats_and_misses_nothing(worker: Worker) -> None:
    first = worker.stream()
    for index in range(3):
        prompt(worker, f"{index}")
    last = first.wait(3).ids()[-1]
    first.close()
    prompt(worker, "3")
    second = worker.stream(last)
    assert second.wait(1).contents() == ["3"]
    prompt(worker, "4")
    assert second.wait(2).contents() == ["3", "4"]


def test_a_runtime_without_memory_gets_each_unacknowledged_prompt(worker: Worker) -> None:
    first = worker.stream()
    ids = [prompt(worker, f"{index}") for index in range(3)]
    first.wait(3).close()
    acknowledge(worker, ids[1])
    assert worker.stream().wait(2).contents() == ["0", "2"]
    assert worker.stream("made up").wait(2).contents() == ["0", "2"]


def test_the_newest_stream_of_a_run_ends_the_one_before(worker: Worker) -> None:
    first, second = worker.stream(), worker.stream()
    until(lambda: first.is_over, "the first stream ends")
    prompt(worker, "x")
    assert second.wait(1).contents() == ["x"]
    until(lambda: worker.api.get("/v1/health").data["runs"] == 1, "only the second stream is open")


@pytest.mark.campaign
def test_prompts_survive_kill_9_of_the_server_at_any_time(worker: Worker) -> None:
    api, got, last = worker.api, [], None
    for index in range(3):
        prompt(worker, f"{index}")
        stream = worker.stream(last)
        stream.wait(1)
        got += stream.contents()
        last = stream.ids()[-1]
        api.kill()
        inbox.queue_message(api.paths, worker.agent, f"{index} without a server", "human:ann", now(), "system")
        api.start()
        stream = worker.stream(last)
        got += stream.wait(1).contents()
        last = stream.ids()[-1]
        stream.close()
    assert got == [text for index in range(3) for text in (f"{index}", f"{index} without a server")]


@pytest.mark.campaign
def test_a_constantly_reconnecting_runtime_gets_each_prompt_once(worker: Worker) -> None:
    got: list[str] = []
    last: str | None = None
    for index in range(200):
        if index % 10 == 0:
            prompt(worker, f"{index}")
        stream = worker.stream(last)
        if index % 10 == 0:
            stream.wait(1)
        got += stream.contents()
        last = (stream.ids() or [last])[-1]
        stream.close()
    assert got == [f"{index}" for index in range(0, 200, 10)]
    until(lambda: worker.api.get("/v1/health").data["runs"] == 0, "all streams are closed")


@pytest.mark.campaign
def test_readers_that_do_not_read_cost_little_memory(worker: Worker) -> None:
    api = worker.api
    for _ in range(100):
        prompt(worker, "x" * 60_000)
    assert worker.stream().wait(100).close() is None
    before = memory(api)
    slow = []
    for _ in range(20):
        slow.append(Stream(worker, None, reads=False))
        time.sleep(0.02)
    other = api.worker(f"coder-{next(_numbers)}.1")
    other.report("ready")
    stream = other.stream()
    worker.streams.append(stream)
    prompt(other, "for the other one")
    assert stream.wait(1).contents() == ["for the other one"]
    assert memory(api) < before + 30
    for one in slow:
        one.close()


def memory(api: Api) -> int:
    """Resident memory of the server in MB."""
    assert api.process is not None
    fields = Path(f"/proc/{api.process.pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


@pytest.mark.campaign
def test_a_full_queue_refuses_prompts_and_loses_none(worker: Worker) -> None:
    for index in range(1000):
        inbox.queue_message(worker.api.paths, worker.agent, f"{index}", "human:ann", now(), "system")
    refused = worker.api.post("/v1/prompt", {"run_id": worker.run, "content": "one more"})
    assert (refused.status, refused.data["code"]) == (429, "queue-full")
    assert sorted(map(int, worker.stream().wait(1000).contents())) == list(range(1000))


def test_a_stream_with_an_unreadable_record_gets_its_prompts_later(worker: Worker) -> None:
    prompt(worker, "x")
    record = worker.api.paths.run(worker.run) / "delivered.txt"
    record.mkdir()
    refused = worker.get("/v1/runs/{run}/stream")
    assert (refused.status, refused.headers["content-type"]) == (503, "application/problem+json")
    record.rmdir()
    assert worker.stream().wait(1).contents() == ["x"]


def test_a_stream_ends_with_its_run(worker: Worker) -> None:
    stream = worker.stream()
    worker.api.open_run(worker.run).mark_concluded("done")
    file_growth.wake_watchers(worker.api.paths, worker.agent)
    until(lambda: stream.is_over, "the stream ends")
