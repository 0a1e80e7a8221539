"""A server of the worker API in a process of its own, and workers that talk to it over real sockets."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from liza.api import api_server, identity
from liza.model.paths import agent_of
from liza.programs.session.run_directory import RunDir, RunRecord
from tests.conftest import LONG, until
from tests.journeys.crews import BIN, Crew, started

JSON = {"content-type": "application/json"}


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    data: Any


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=LONG)
        self._path = path

    def connect(self) -> None:
        self.sock = connect_unix(self._path)


def connect_unix(path: Path) -> socket.socket:
    """Connect to the socket at ``path``, which may be longer than the 107 bytes of a socket's address.

    The address goes through an open directory: the working directory belongs to the whole process, and tests connect in
    several threads.
    """
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(LONG)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        client.connect(f"/proc/self/fd/{directory}/{path.name}")
    finally:
        os.close(directory)
    return client


def _decode(reply: http.client.HTTPResponse) -> Reply:
    text = reply.read()
    headers = {name.lower(): value for name, value in reply.getheaders()}
    data = json.loads(text) if "json" in headers.get("content-type", "") else text.decode()
    return Reply(reply.status, headers, data)


class Api:
    """The server of a crew, as it was started last."""

    def __init__(self, crew: Crew) -> None:
        self.crew, self.paths = crew, crew.paths
        self.log = crew.notes / "server.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(BIN / "liza"), "serve"], cwd=self.crew.root, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until(self.answers, "the server answers")

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.log.read_text()}"
        with suppress(OSError, http.client.HTTPException):
            return self.get("/v1/health").status == 200
        return False

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=LONG)

    @property
    def port(self) -> int:
        port = api_server.read_port(self.paths.api_port)
        assert port is not None
        return port

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = None,
        tcp: bool = False,
        headers: Mapping[str, str] = {},
    ) -> Reply:
        """One request; ``body`` is JSON unless it is bytes."""
        connection = (
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG)
            if tcp
            else _UnixConnection(self.paths.api_socket)
        )
        text = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        all_headers = {**({} if body is None else JSON), **headers}
        if token is not None:
            all_headers["authorization"] = f"Bearer {token}"
        with contextlib.closing(connection):
            connection.request(method, path, text, all_headers)
            return _decode(connection.getresponse())

    def connect(self) -> http.client.HTTPConnection:
        """A connection for several requests."""
        return _UnixConnection(self.paths.api_socket)

    def get(self, path: str, **more: Any) -> Reply:
        return self.call("GET", path, **more)

    def post(self, path: str, body: Any = None, **more: Any) -> Reply:
        return self.call("POST", path, {} if body is None else body, **more)

    def open_run(self, run: str, task: str | None = None, kind: str = "work") -> RunDir:
        """The directory of a run, as a supervisor makes it before the session starts."""
        directory = RunDir(self.paths, run)
        slot = self.crew.task(task).worktree if task is not None else None
        worktree = str(self.crew.paths.slot(slot)) if slot else ""
        directory.create(
            RunRecord(agent=agent_of(run), run=run, kind=kind, started=now(), task=task, worktree=worktree)
        )
        return directory

    def worker(self, run: str = "coder-1.1", task: str | None = None) -> Worker:
        """A worker of a new run, with its bearer token."""
        directory = self.open_run(run, task)
        reply = self.post("/v1/identity", {"token": identity.issue_token(directory, now())})
        assert reply.status == 200, reply
        return Worker(self, run, reply.data["token"])


class Worker:
    """A runtime: its run, and its token."""

    def __init__(self, api: Api, run: str, token: str) -> None:
        self.api, self.run, self.token = api, run, token
        self.agent = agent_of(run)
        self.streams: list[Stream] = []

    def post(self, path: str, body: Any = None, **more: Any) -> Reply:
        return self.api.post(path.replace("{run}", self.run), body, token=self.token, **more)

    def get(self, path: str, **more: Any) -> Reply:
        return self.api.get(path.replace("{run}", self.run), token=self.token, **more)

    def report(self, event: str, **more: Any) -> Reply:
        body = {"event": event, "run_id": self.run, "timestamp": now(sharp=True).isoformat(), **more}
        return self.post("/v1/lifecycle", body)

    def stream(self, last_event_id: str | None = None) -> Stream:
        stream = Stream(self, last_event_id)
        self.streams.append(stream)
        return stream


class Stream:
    """An open stream. A thread reads it, unless it is a slow reader; ``events`` are what it read, ``silences`` counts
    the comments after KEEP_ALIVE_SECONDS without an event."""

    def __init__(self, worker: Worker, last_event_id: str | None, *, reads: bool = True) -> None:
        self.socket = connect_unix(worker.api.paths.api_socket)
        last = "" if last_event_id is None else f"Last-Event-ID: {last_event_id}\r\n"
        head = (
            f"GET /v1/runs/{worker.run}/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {worker.token}\r\n"
        )
        self.socket.sendall(f"{head}{last}\r\n".encode())
        self.events: list[dict[str, Any]] = []
        self.is_open, self.is_over, self.silences = False, False, 0
        if reads:
            threading.Thread(target=self._read, daemon=True).start()
            until(lambda: self.is_open or self.is_over, "the stream is open")

    def _read(self) -> None:
        rest = b""
        with suppress(OSError):
            while data := self.socket.recv(1 << 16):
                self.is_open = True
                *blocks, rest = (rest + data).split(b"\n\n")
                self.silences += sum(b": keep-alive" in block for block in blocks)
                self.events += [event for block in blocks if (event := _parse(block))]
        self.is_over = True

    def ids(self) -> list[str]:
        return [event["id"] for event in self.events if "id" in event]

    def contents(self) -> list[str]:
        return [event["data"]["content"] for event in self.events if event.get("event") == "prompt"]

    def wait(self, count: int) -> Stream:
        until(lambda: len(self.contents()) >= count, f"{count} prompts on the stream, not {len(self.contents())}")
        return self

    def close(self) -> None:
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


def _parse(block: bytes) -> dict[str, Any]:
    """An event; empty for a comment. Lines without a name are the sizes of chunks."""
    event: dict[str, Any] = {}
    for line in block.decode().split("\n"):
        name, separator, value = line.strip().partition(": ")
        if separator and name in ("id", "event", "data"):
            event[name] = json.loads(value) if name == "data" else value
    return event


def now(sharp: bool = False) -> datetime:
    current = datetime.now(UTC)
    return current if sharp else current.replace(microsecond=0)


@contextmanager
def serving(tmp_path: Path) -> Iterator[Api]:
    """A crew with a server, ended after the test."""
    with started(tmp_path) as crew:
        api = Api(crew)
        try:
            api.start()
            yield api
        finally:
            if api.process is not None and api.process.poll() is None:
                api.process.kill()
            if api.process is not None:
                api.process.wait()
