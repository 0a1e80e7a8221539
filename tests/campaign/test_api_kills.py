"""kill -9 of the server of the worker API at random moments under load: no turn is lost or counted twice, and no prompt
is lost or delivered twice."""

from __future__ import annotations

import http.client
import os
import random
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from liza.briefs import inbox
from liza.system import file_growth
from liza.usage.telemetry_log import TelemetryLog
from tests.conftest import until
from tests.edges.api_worker import Api, Stream, Worker, now, serving

SEED = int(os.environ.get("LIZA_SEED", "20260101"))
WORKERS = 4


class Runtime:
    """A worker that sends turns and reads its stream, each in a thread of its own, until it is told to stop."""

    def __init__(self, api: Api, number: int) -> None:
        self.worker: Worker = api.worker(f"coder-{number}.1")
        self.worker.report("ready")
        self.stopping = threading.Event()
        self.sent, self.queued = 0, 0
        self.got: list[str] = []
        self.faults: list[object] = []
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._send, self._listen)]
        for thread in self._threads:
            thread.start()

    def queue(self) -> None:
        """Queue a prompt as `liza note --now` does."""
        paths, agent = self.worker.api.paths, self.worker.agent
        inbox.queue_message(paths, agent, f"{self.queued}", "human:ann", now(), "system")
        file_growth.wake_watchers(paths, agent)
        self.queued += 1

    def finish(self) -> None:
        until(lambda: len(self.got) >= self.queued, f"{self.queued} prompts, not {len(self.got)}")
        self.stopping.set()
        for thread in self._threads:
            thread.join(timeout=60)
        assert self.faults == []

    def _send(self) -> None:
        while not self.stopping.is_set():
            turn = {"type": "turn_complete", "id": f"t{self.sent}", "timestamp": now().isoformat()}
            body = {"run_id": self.worker.run, "events": [{**turn, "usage": {"input_tokens": 1}}]}
            self._until_answered("/v1/telemetry", body)
            self.sent += 1

    def _listen(self) -> None:
        last: str | None = None
        while not self.stopping.is_set():
            try:
                stream = Stream(self.worker, last)
            except OSError:
                time.sleep(0.01)
                continue
            taken, is_over = 0, False
            while not is_over and not self.stopping.is_set():
                # Asked first: what arrives before the end is taken below.
                is_over = stream.is_over
                # The stream grows meanwhile: only the events of this copy are taken.
                events = stream.events[taken:]
                taken += len(events)
                for event in events:
                    if event.get("event") == "prompt":
                        self.got.append(event["data"]["content"])
                        last = event["id"]
                        if len(self.got) % 3 == 0 and not is_over:
                            self._acknowledge(stream, last)
                time.sleep(0.005)
            stream.close()

    def _acknowledge(self, stream: Stream, prompt: str) -> None:
        self._until_answered("/v1/acknowledge", {"run_id": self.worker.run, "ids": [prompt]})

    def _until_answered(self, path: str, body: object) -> None:
        while not self.stopping.is_set():
            try:
                reply = self.worker.post(path, body)
            except (OSError, http.client.HTTPException, ValueError):
                time.sleep(0.01)
                continue
            if reply.status != 200:
                self.faults.append(reply)
            return


class SlowRuntime(Runtime):
    """Acknowledges a prompt only when the next one is on its stream."""

    def _acknowledge(self, stream: Stream, prompt: str) -> None:
        self.queue()
        stream.wait(self.queued)
        super()._acknowledge(stream, prompt)


def kill_under_load(tmp_path: Path, kills: int) -> None:
    dice = random.Random(SEED)
    with serving(tmp_path) as api, ExitStack() as runtimes_end:
        runtimes: list[Runtime] = []
        for number in range(1, WORKERS + 1):
            runtimes.append(Runtime(api, number))
            runtimes_end.callback(runtimes[-1].stopping.set)  # A failed test leaves no thread behind.
        for _ in range(kills):
            for runtime in runtimes:
                for _ in range(dice.randrange(4)):
                    runtime.queue()
            time.sleep(dice.random() * 0.4)
            api.kill()
            for runtime in runtimes:
                runtime.queue()
            api.start()
        for runtime in runtimes:
            runtime.finish()
        for runtime in runtimes:
            assert runtime.got == [f"{index}" for index in range(runtime.queued)]
            sums = TelemetryLog(api.paths.run(runtime.worker.run)).read()
            assert sums is not None
            # The last turn may have been stored before its answer was awaited no longer.
            assert sums.turns in (runtime.sent, runtime.sent - 1), (sums.turns, runtime.sent)
            assert sums.turns == sums.used.input


def test_a_prompt_that_arrives_during_an_acknowledgement_is_taken(tmp_path: Path) -> None:
    with serving(tmp_path) as api, ExitStack() as runtimes_end:
        runtime = SlowRuntime(api, 1)
        runtimes_end.callback(runtime.stopping.set)
        for _ in range(3):
            runtime.queue()
        until(lambda: len(runtime.got) >= 4, "the prompt that was queued during the acknowledgement")
        runtime.finish()
        assert runtime.got == ["0", "1", "2", "3"]


def test_a_few_kills_lose_nothing(tmp_path: Path) -> None:
    kill_under_load(tmp_path, 3)


@pytest.mark.campaign
def test_a_hundred_kills_lose_nothing(tmp_path: Path) -> None:
    kill_under_load(tmp_path, 100)
