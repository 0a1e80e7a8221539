"""Rows of the page of `liza web`, read with a client that is no browser."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any
from urllib.parse import urlencode

import msgspec

from benchmarks.growth_rows import describe
from benchmarks.options import Options
from benchmarks.rows import Row, summarize
from benchmarks.running_crews import process_cpu, resident_memory
from liza.model.spending import LedgerEntry, TokenUsage
from liza.model.statuses import Status
from liza.system.clock import SystemClock
from liza.usage import ledger
from tests.browser.shops import Web, running_web
from tests.journeys.crews import Crew

GROUP = "view"
PATHS = ("/", "/board", "/agents", "/queue", "/costs", "/history", "/tasks/{task}")
STREAMS = 10
STATUSES = (Status.UNCLAIMED, Status.BLOCKED, Status.DRAFT, Status.APPROVED, Status.MERGED, Status.ABANDONED)
WORK: dict[str, Any] = {"review_commit": "a" * 40, "approved_by": "code-reviewer-1", "assigned_to": "coder-1"}
FIELDS: dict[Status, dict[str, Any]] = {
    Status.BLOCKED: {
        "blocked_reason": "the mail needs a sender",
        "blocked_questions": ("Which address is the sender of the mail?",),
    },
    Status.APPROVED: WORK | {"base_commit": "b" * 40, "iteration": 1},
    Status.MERGED: WORK | {"merge_commit": "c" * 40},
}
"""What the board needs of tasks with these statuses."""
_OWN_FILES = re.compile(rb'(?:href|src)="(/[\w.-]+\.(?:css|js)[^"]*)"')
_VERSION = re.compile(rb'data-version="([^"]*)"')
_LIMIT = 60.0


class PageClient:
    """A client of one `liza web` that has logged in."""

    def __init__(self, web: Web) -> None:
        self._web = web
        code = web.take_address().rpartition("#t=")[2]
        with closing(self._connect()) as connection:
            headers = {"Origin": web.origin, "Content-Type": "application/x-www-form-urlencoded"}
            connection.request("POST", "/login", urlencode({"code": code}), headers)
            answer = connection.getresponse()
            assert answer.status == 303, answer.read()
            self._headers = {"Cookie": (answer.getheader("set-cookie") or "").partition(";")[0]}

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._web.port, timeout=_LIMIT)

    def read(self, path: str) -> bytes:
        """Return what is at an address."""
        with closing(self._connect()) as connection:
            connection.request("GET", path, headers=self._headers)
            answer = connection.getresponse()
            assert answer.status == 200, (path, answer.status)
            return answer.read()

    def follow(self, path: str) -> EventStream:
        """Return the stream of a page that was read just now."""
        match = _VERSION.search(self.read(path))
        assert match, path
        connection = self._connect()
        query = urlencode({"page": path, "version": match[1].decode()})
        connection.request("GET", f"/events?{query}", headers=self._headers)
        return EventStream(connection, connection.getresponse())


class EventStream:
    """A thread that reads the stream of a page, and notes when it said what."""

    def __init__(self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse) -> None:
        self._connection, self._answer = connection, answer
        self._changed = threading.Condition()
        self._parts: list[tuple[float, str]] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in iter(self._answer.readline, b""):
            if line.startswith(b"data: "):
                parts = json.loads(line[6:]).get("parts") or {}
                with self._changed:
                    self._parts.append((time.monotonic(), "".join(parts.values())))
                    self._changed.notify_all()

    def wait_for(self, text: str) -> float:
        """Return when a text came."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._time_of(text), _LIMIT), text
            return self._time_of(text)

    def _time_of(self, text: str) -> float:
        return next((moment for moment, html in self._parts if text in html), 0.0)

    def close(self) -> None:
        """End the connection; the thread ends with it."""
        if self._connection.sock is not None:
            self._connection.sock.shutdown(2)
        self._thread.join()
        self._connection.close()


def vary_tasks(crew: Crew) -> None:
    """Give the tasks different statuses, one in six a question, and each task a session."""
    with crew.board.transaction("human:bench", "edit") as tx:
        for number, task in enumerate(tx.state.tasks):
            status = STATUSES[number % len(STATUSES)]
            task = msgspec.structs.replace(task, status=status, **FIELDS.get(status, {}))
            tx.state = tx.state.with_task(task)
    now = SystemClock().now()
    for task in crew.board.read().tasks:
        spent = LedgerEntry(
            run=f"coder-1.{task.id}", time=now, kind="work", program="claude", outcome="submit", seconds=60.0,
            task=task.id, used=TokenUsage(input=410_000, output=21_300, cost=1.84),
        )  # fmt: skip
        ledger.append_entry(crew.paths, spent)


def measure_page(options: Options, crew: Crew, tasks: int) -> Iterator[Row]:
    """A page that is open: sizes, changes, memory, ten browsers, and nothing to do."""
    with running_web(crew.root) as web:
        client = PageClient(web)
        yield from measure_first_load(client, tasks)
        stream = client.follow("/")
        yield measure_changes(options, crew, stream, tasks)
        yield measure_idle(options, web, tasks)
        yield measure_streams(options, crew, web, client, tasks)
        stream.close()
        vary_tasks(crew)
        yield measure_largest(client, crew, tasks)
        memory = summarize([resident_memory(web.pid)])
        yield Row(GROUP, f"page, {tasks} tasks: memory", "MB", memory, target=90.0)


def measure_first_load(client: PageClient, tasks: int) -> Iterator[Row]:
    """Bytes without compression: there is none."""
    first = client.read("/")
    others = [path.decode() for path in _OWN_FILES.findall(first)]
    load = summarize([float(len(first) + sum(len(client.read(path)) for path in others))])
    yield Row(GROUP, f"page, {tasks} tasks: first load", "bytes", load, target=30_000.0, is_count=True)
    count = summarize([1.0 + len(others)])
    yield Row(GROUP, f"page, {tasks} tasks: requests of the first load", "", count, target=3.0, is_count=True)


def measure_largest(client: PageClient, crew: Crew, tasks: int) -> Row:
    """All pages, while tasks wait, are queued, merged and given up."""
    paths = [path.format(task=crew.board.read().tasks[0].id) for path in PATHS]
    size, path = max((float(len(client.read(path))), path) for path in paths)
    own = summarize([size])
    return Row(
        GROUP, f"page, {tasks} tasks: the largest", "bytes", own, target=60_000.0, is_count=True, note=f"it is {path}"
    )


def measure_changes(options: Options, crew: Crew, stream: EventStream, tasks: int) -> Row:
    """From the board to the client."""
    taken = []
    for number in range(1, options.rounds(30) + 1):
        start = describe(crew, number)
        taken.append((stream.wait_for(f"Write change {number}.") - start) * 1000)
        time.sleep(0.7)
    return Row(GROUP, f"page, {tasks} tasks: change to page, p95", "ms", summarize(taken), target=400.0)


def measure_idle(options: Options, web: Web, tasks: int) -> Row:
    """One page is open, and nothing changes."""
    seconds = 5.0 if options.quick else 60.0
    time.sleep(seconds)
    cpu = process_cpu(web.pid)
    time.sleep(seconds)
    share = (process_cpu(web.pid) - cpu) / seconds / 10
    return Row(GROUP, f"page, {tasks} tasks, idle: CPU", "% of a core", summarize([share]), target=0.5)


def measure_streams(options: Options, crew: Crew, web: Web, client: PageClient, tasks: int) -> Row:
    """Ten pages are open, of all kinds, and the board changes once a second."""
    task = crew.board.read().tasks[0].id
    with ExitStack() as open_streams:
        for number in range(STREAMS):
            path = PATHS[number % len(PATHS)].format(task=task)
            open_streams.callback(client.follow(path).close)
        cpu, start, shares = process_cpu(web.pid), time.monotonic(), []
        for number in range(options.rounds(30)):
            describe(crew, 100 + number)
            time.sleep(max(0.0, start + number + 1 - time.monotonic()))
            now = process_cpu(web.pid)
            shares.append((now - cpu) / 10)
            cpu = now
    return Row(
        GROUP, f"page, {tasks} tasks: {STREAMS} are open, a change a second: CPU", "% of a core", summarize(shares),
        target=20.0,
    )  # fmt: skip
