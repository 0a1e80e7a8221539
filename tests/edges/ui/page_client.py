"""A running `liza web`, and a client that sends what a browser or an attacker sends, each byte of it."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from tests.journeys.crews import BIN
from tests.terminal_stand_in import TerminalStandIn

LIMIT = 20.0
FORM = "application/x-www-form-urlencoded"
_ADDRESS = re.compile(r"(https?://(\S+?))/login#t=(\S+)")


class Answer(NamedTuple):
    """What came back. Names of headers are lower case."""

    status: int
    headers: Mapping[str, str]
    text: str


class PageClient:
    """Sends requests to the page. ``cookie``: what a browser sends that is logged in; empty before the login."""

    def __init__(self, terminal: TerminalStandIn, port: int) -> None:
        self.terminal, self.port = terminal, port
        self.host = f"127.0.0.1:{port}"
        self.cookie = ""

    @property
    def codes(self) -> list[str]:
        """The codes on the terminal, the newest last."""
        return [match[3] for match in _ADDRESS.finditer(self.terminal.text)]

    def press_enter(self) -> str:
        """Return the code that the person then gets."""
        before = len(self.codes)
        self.terminal.type("\n")
        self.terminal.wait_for(lambda: len(self.codes) > before, LIMIT)
        return self.codes[-1]

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT)

    def head_of(self, method: str, path: str, headers: Mapping[str, str]) -> bytes:
        """The head of a request of the browser that is logged in; ``headers`` come instead of its own."""
        rows = {"host": self.host, "accept": "text/html", **({"cookie": self.cookie} if self.cookie else {}), **headers}
        return "".join(
            [f"{method} {path} HTTP/1.1\r\n", *(f"{name}: {text}\r\n" for name, text in rows.items())]
        ).encode()

    def ask(self, path: str = "/", method: str = "GET", body: bytes = b"", **headers: str) -> Answer:
        """Send a request, also one that no browser sends: ``_`` in names of headers is ``-``."""
        rows = {name.replace("_", "-"): text for name, text in headers.items()}
        rows |= {"content-length": str(len(body))} if body else {}
        with self.connect() as line:
            line.sendall(self.head_of(method, path, {"connection": "close", **rows}) + b"\r\n" + body)
            return read_answer(line)

    def post(self, path: str, fields: Mapping[str, str], **headers: str) -> Answer:
        """Send a form as the page does."""
        own = {"origin": f"http://{self.host}", "content_type": FORM}
        return self.ask(path, "POST", urlencode(fields).encode(), **{**own, **headers})

    def enter(self, code: str, **headers: str) -> Answer:
        """Send the form of the login."""
        return self.post("/login", {"code": code, "back": "/board"}, **headers)

    def log_in(self) -> str:
        """Log in with a new code; return the cookie."""
        answer = self.enter(self.press_enter(), cookie="")
        assert answer.status == 303, answer
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return self.cookie

    @contextmanager
    def stream(self, page: str = "/", version: str = "x", **headers: str) -> Iterator[PageStream]:
        """Follow a page."""
        rows = {"accept": "text/event-stream", **{name.replace("_", "-"): text for name, text in headers.items()}}
        path = f"/events?{urlencode({'page': page, 'version': version})}"
        with self.connect() as line:
            line.sendall(self.head_of("GET", path, rows) + b"\r\n")
            yield PageStream(line)


class PageStream:
    """The events of a page, in their order."""

    def __init__(self, line: socket.socket) -> None:
        self._file = line.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        while self._file.readline().strip():
            pass

    def next_event(self) -> tuple[str, Any]:
        """Return the next event: its id and its data. Raises EOFError at the end."""
        block: dict[str, str] = {}
        while line := self._next_line():
            name, _, text = line.partition(": ")
            block[name] = text
        return block.get("id", ""), json.loads(block["data"])

    def wait_for_parts(self) -> tuple[str, dict[str, str]]:
        """Return the id of the next change, and the sections that it replaces."""
        while True:
            version, data = self.next_event()
            if "parts" in data:
                return version, data["parts"]

    def is_at_end(self) -> bool:
        """Read the next event; return whether there is none, because the server has ended the stream."""
        try:
            self.next_event()
        except EOFError:
            return True
        return False

    def _next_line(self) -> str:
        """Return the next line within the chunks of the response."""
        while True:
            line = self._file.readline()
            if not line or line == b"0\r\n":
                raise EOFError
            if not re.fullmatch(rb"[0-9a-f]+\r\n|\r\n", line):
                return line.decode().rstrip("\n")


def read_answer(line: socket.socket) -> Answer:
    """Read an answer whose connection is closed at its end."""
    with line.makefile("rb") as file:
        status = int(file.readline().split()[1])
        rows = iter(lambda: file.readline().decode("latin-1").strip(), "")
        headers = {name.lower(): text for name, _, text in (row.partition(": ") for row in rows)}
        body = file.read()
    return Answer(status, headers, body.decode())


@contextmanager
def page_of(root: Path, *words: str) -> Iterator[PageClient]:
    """`liza web` at a pseudo-terminal, on a port that is free."""
    with TerminalStandIn(
        [BIN / "liza", "web", *(words if "--port" in words else ("--port", "0", *words))], root, (200, 50)
    ) as terminal:
        terminal.wait_for(lambda: _ADDRESS.search(terminal.text), LIMIT)
        match = _ADDRESS.search(terminal.text)
        assert match is not None
        yield PageClient(terminal, find_port(terminal))


def find_port(terminal: TerminalStandIn) -> int:
    """The port that the process listens on: a tunnel's address does not have it."""
    from liza.system import peers

    sockets = set(peers.iter_sockets(terminal.process.pid))
    return next(int(name) for inode, name in peers.list_listening().items() if inode in sockets and name.isdigit())
