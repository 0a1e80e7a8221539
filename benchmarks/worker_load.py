"""Load of many workers on the server of the worker API; ``worker_api`` starts it as a process of its own.

It reads a WorkerLoad as JSON from stdin and writes a LoadResult to stdout. Each worker has three connections to the
Unix socket, which it opens again when the server ends: its stream, one for telemetry and one for questions whether a
tool may run. It repeats a request that was not answered, as a runtime does.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec

RECONNECT_DELAY = 0.02  # seconds; doubled up to MAX_RECONNECT_DELAY
MAX_RECONNECT_DELAY = 0.5
COMMAND = {"command": "python -m pytest -q tests/unit 2>&1 | tail -5 && git status --short && ls -la src | head"}
"""A usual command, which the guards have to parse."""


class WorkerLoad(msgspec.Struct, frozen=True):
    """``tokens`` are bearer tokens, one for each worker. ``seconds`` is the duration, the others are per second and
    worker; events are sent in batches."""

    socket: str
    tokens: tuple[str, ...]
    seconds: float
    events: float
    batches: float
    questions: float


class LoadResult(msgspec.Struct):
    """``questions`` whether a tool may run, all of them: when each was asked, and after how many ms it was answered.
    ``telemetry``: ms of each telemetry request. ``begin``: when the workers began to connect. ``cpu``: CPU seconds of
    the load.

    ``prompts``: the times at which each prompt arrived, by its content; ``sent`` counts the telemetry events of each
    run; ``problems`` are answers that were no success.
    """

    questions: list[tuple[float, float]] = []
    telemetry: list[float] = []
    prompts: dict[str, list[float]] = {}
    sent: dict[str, int] = {}
    problems: dict[str, int] = {}
    reconnects: int = 0
    begin: float = 0.0
    cpu: float = 0.0


class Channel:
    """A connection that is opened again if it breaks."""

    def __init__(self, path: str, token: str) -> None:
        self._path, self._token = path, token
        self.reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.breaks = 0

    async def send(self, method: str, path: str, body: bytes = b"", extra: str = "") -> None:
        """Send a request. Raises OSError."""
        if self._writer is None:
            self.reader, self._writer = await asyncio.open_unix_connection(self._path)
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self._token}\r\n{extra}"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n" if body else "\r\n"
        self._writer.write(head.encode() + body)
        await self._writer.drain()

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Send a request until it is answered; return status and body."""
        delay = RECONNECT_DELAY
        while True:
            try:
                await self.send("POST", path, body)
                return await self._answer()
            except (OSError, EOFError, ValueError, IndexError):
                self.drop()
                await asyncio.sleep(delay * (0.5 + random.random()))
                delay = min(2 * delay, MAX_RECONNECT_DELAY)

    async def _answer(self) -> tuple[int, bytes]:
        assert self.reader is not None
        head = await self.reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        return status, await self.reader.readexactly(length)

    def drop(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._writer is not None:
            self._writer.close()
        self.reader = self._writer = None
        self.breaks += 1


class Worker:
    """One worker of the load."""

    def __init__(self, load: WorkerLoad, token: str, result: LoadResult) -> None:
        self._load, self._result = load, result
        self._run = token.partition(":")[0]
        self._telemetry, self._questions, self._stream = (Channel(load.socket, token) for _ in range(3))
        self._end = 0.0

    async def work(self, end: float) -> None:
        """Report, ask and listen until ``end``; telemetry that was not answered is repeated after it."""
        self._end = end
        listening = asyncio.create_task(self._listen())
        await asyncio.gather(self._report(), self._ask())
        await asyncio.sleep(1.0)  # for the last prompts
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening
        self._result.reconnects += sum(each.breaks for each in (self._telemetry, self._questions, self._stream))

    async def _report(self) -> None:
        size, number = max(1, round(self._load.events / self._load.batches)), 0
        async for _ in self._ticks(self._load.batches):
            events = [self._event(number + index) for index in range(size)]
            number += size
            body = json.dumps({"run_id": self._run, "events": events}).encode()
            start = time.perf_counter()
            status, answer = await self._telemetry.post("/v1/telemetry", body)
            self._result.telemetry.append((time.perf_counter() - start) * 1000)
            self._check(status, answer)
        self._result.sent[self._run] = number

    def _event(self, number: int) -> dict[str, Any]:
        usage = {"input_tokens": 1200, "output_tokens": 35, "model": "m", "cost_usd": 0.01}
        tools = [{"name": "shell", "success": True, "duration_ms": 12}]
        now = datetime.now(UTC).isoformat()
        return {
            "type": "turn_complete", "timestamp": now, "id": f"turn-{number}", "usage": usage, "tools_called": tools,
        }  # fmt: skip

    async def _ask(self) -> None:
        body = json.dumps({"run_id": self._run, "tool": "shell", "input": COMMAND}).encode()
        async for _ in self._ticks(self._load.questions):
            asked, start = time.time(), time.perf_counter()
            status, answer = await self._questions.post("/v1/authorize", body)
            self._result.questions.append((asked, (time.perf_counter() - start) * 1000))
            self._check(status, answer)

    async def _listen(self) -> None:
        """Read the stream, acknowledge each prompt, and open it again when it ends."""
        last, control = "", Channel(self._load.socket, self._stream._token)
        while True:
            try:
                extra = f"Last-Event-ID: {last}\r\n" if last else ""
                await self._stream.send("GET", f"/v1/runs/{self._run}/stream", extra=extra)
                assert self._stream.reader is not None
                while line := await self._stream.reader.readline():
                    text = line.decode().strip()
                    if text.startswith("data: ") and '"content"' in text:
                        prompt = json.loads(text[6:])
                        self._result.prompts.setdefault(prompt["content"], []).append(time.time())
                        last = prompt["id"]
                        body = json.dumps({"run_id": self._run, "ids": [last]}).encode()
                        self._check(*await control.post("/v1/acknowledge", body))
            except OSError:
                pass
            self._stream.drop()
            await asyncio.sleep(RECONNECT_DELAY * (1 + random.random()))

    async def _ticks(self, rate: float) -> Any:
        """Yield ``rate`` times per second until the end, from a random moment on. A late tick is not left out."""
        if rate <= 0:
            return
        due = time.monotonic() + random.random() / rate
        while due < self._end:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            yield due
            due += 1 / rate

    def _check(self, status: int, answer: bytes) -> None:
        if status >= 400:
            name = f"{status} {answer[:200].decode(errors='replace')}"
            self._result.problems[name] = self._result.problems.get(name, 0) + 1


async def run_load(load: WorkerLoad) -> LoadResult:
    """Run all workers to the end."""
    result = LoadResult(begin=time.time())
    workers = [Worker(load, token, result) for token in load.tokens]
    sys.stderr.write("ready\n")
    end = time.monotonic() + load.seconds
    await asyncio.gather(*(worker.work(end) for worker in workers))
    result.cpu = time.process_time()
    return result


def main(words: Sequence[str] = ()) -> None:
    random.seed(1)
    result = asyncio.run(run_load(msgspec.json.decode(sys.stdin.buffer.read(), type=WorkerLoad)))
    sys.stdout.buffer.write(msgspec.json.encode(result))


if __name__ == "__main__":
    main()
