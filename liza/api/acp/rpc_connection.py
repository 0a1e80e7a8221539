"""JSON-RPC 2.0 with a child process: one message per line on its stdin and stdout.

Messages stay dicts: a program may send kinds of updates, stop reasons and fields that this version does not know, and
none of them may be lost. A line that is no message is counted and skipped: adapters print notices on stdout.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from queue import SimpleQueue
from typing import IO, Any

import msgspec

from liza.model.errors import LizaError
from liza.model.value_classes import Value

METHOD_NOT_FOUND = -32601
KEPT_LINES, MAX_KEPT_LINE = 20, 2000  # lines, and bytes of each
MAX_LINE = 32 << 20  # bytes; the longest that was seen is 20 MB, and a line is in memory until it is read
MAX_ID = 18  # digits of an id that came as a string; its own requests have far fewer


class AgentRequest(Value):
    """The program asks; it waits for the answer with this id."""

    id: Any
    method: str
    params: dict[str, Any]


class AgentNotice(Value):
    """The program tells something, and expects no answer."""

    method: str
    params: dict[str, Any]


class AgentAnswer(Value):
    """The answer to a request of this side: a result, or an error."""

    id: int
    result: Any = None
    error: Any = None


class AgentGone(Value):
    """The program has closed its stdout."""


class LineTooLong(LizaError):
    """The program wrote a line of more than MAX_LINE bytes. Event and error: nothing after it can be read."""

    def __init__(self) -> None:
        super().__init__(
            f"the program wrote a line of more than {MAX_LINE >> 20} MiB on its stdout, which is no message of ACP",
            "run it by hand with the arguments of `[programs.X.acp]`, or without ACP as NAME:headless",
        )


Received = AgentRequest | AgentNotice | AgentAnswer | AgentGone


class RpcConnection:
    """Sends and receives messages. Received ones are put into ``events``, in order.

    Two threads read and write, so that neither a program that reads nothing nor one that writes much blocks the caller.
    """

    def __init__(self, incoming: IO[bytes], outgoing: IO[bytes], events: SimpleQueue[Any]) -> None:
        self.skipped: deque[str] = deque(maxlen=KEPT_LINES)
        """The last lines that were no messages: why a program ended may be among them."""
        self._incoming, self._outgoing, self._events = incoming, outgoing, events
        self._next_id = 0
        self._to_write: SimpleQueue[bytes | None] = SimpleQueue()
        self._writer = threading.Thread(target=self._write_all, name="acp-writer", daemon=True)
        self._reader = threading.Thread(target=self._read_all, name="acp-reader", daemon=True)
        self._writer.start()
        self._reader.start()

    def request(self, method: str, params: dict[str, Any]) -> int:
        """Send a request, and return the id of its answer."""
        self._next_id += 1
        self._send({"id": self._next_id, "method": method, "params": params})
        return self._next_id

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification."""
        self._send({"method": method, "params": params})

    def answer(self, request: AgentRequest, result: Any) -> None:
        """Answer a request of the program."""
        self._send({"id": request.id, "result": result})

    def refuse(self, request: AgentRequest, code: int, message: str) -> None:
        """Answer a request of the program with an error."""
        self._send({"id": request.id, "error": {"code": code, "message": message}})

    def close_input(self) -> None:
        """Close the program's stdin after everything that was sent."""
        self._to_write.put(None)

    def _send(self, message: dict[str, Any]) -> None:
        # One program rejects a message without this field, another one never answers it.
        self._to_write.put(msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n")

    def _write_all(self) -> None:
        # An error means that the program is gone, which the reader reports.
        try:
            with suppress(OSError, ValueError):
                while (data := self._to_write.get()) is not None:
                    self._outgoing.write(data)
                    self._outgoing.flush()
        finally:
            with suppress(OSError):
                self._outgoing.close()

    def _read_all(self) -> None:
        try:
            with suppress(OSError, ValueError):
                while line := self._incoming.readline(MAX_LINE):
                    if len(line) == MAX_LINE and not line.endswith(b"\n"):
                        self._events.put(LineTooLong())
                        return
                    message = parse_message(line)
                    if message is not None:
                        self._events.put(message)
                    elif line.strip():
                        self.skipped.append(line[:MAX_KEPT_LINE].decode(errors="replace").rstrip())
        finally:
            self._events.put(AgentGone())


def parse_message(line: bytes) -> Received | None:
    """Return the message in a line; None if it is none."""
    try:
        message = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(message, dict):
        return None
    method, params = message.get("method"), message.get("params")
    if isinstance(method, str):
        values = params if isinstance(params, dict) else {}
        return AgentNotice(method, values) if message.get("id") is None else AgentRequest(message["id"], method, values)
    name = message.get("id")
    if isinstance(name, str) and name.isdecimal() and len(name) <= MAX_ID:
        name = int(name)
    if not isinstance(name, int) or isinstance(name, bool) or not ("result" in message or "error" in message):
        return None
    return AgentAnswer(name, message.get("result"), message.get("error"))
