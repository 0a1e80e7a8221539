"""The process of the real program: start it, read its stderr, and end it in the order that loses least."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

import msgspec

from liza.model.errors import LizaError
from liza.model.value_classes import Value
from liza.programs.session import log_file
from liza.system import crash_points, processes

ERROR_LOG = "acp-stderr.log"
MAX_ERROR_LOG, KEPT_ERROR_LOG = 4 << 20, 1 << 20  # bytes at which the log of stderr is cut, and bytes kept then
TAIL_LINES, MAX_LINE = 20, 1 << 16  # the second in bytes
ERROR_SECONDS = 1.0  # seconds to wait for the end of stderr after that of the program
TERM_SECONDS = 1.5  # seconds from SIGTERM to SIGKILL for the program's group
POLL_SECONDS = 0.02
"""Interval of the checks whether the program has ended. Its pipes say nothing: a process that it left may hold them."""


class AgentProcess:
    """The program as a child in a process group of its own, so that a signal to the sidecar's group leaves the order of
    the end to the sidecar. Raises OSError if the program cannot be started."""

    def __init__(self, argv: tuple[str, ...], cwd: str, env: dict[str, str], run_dir: Path) -> None:
        self._child = subprocess.Popen(
            argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )
        crash_points.point("acp", "spawned")
        self._error_lines: deque[str] = deque(maxlen=TAIL_LINES)
        assert self._child.stderr is not None
        self._reader = threading.Thread(
            target=self._read_errors, args=(self._child.stderr, run_dir / ERROR_LOG), name="acp-stderr", daemon=True
        )
        self._reader.start()

    @property
    def incoming(self) -> IO[bytes]:
        """Its stdout."""
        assert self._child.stdout is not None
        return self._child.stdout

    @property
    def outgoing(self) -> IO[bytes]:
        """Its stdin."""
        assert self._child.stdin is not None
        return self._child.stdin

    def exit_status(self) -> int | None:
        """Return its exit status, negative for a signal; None while it runs."""
        return self._child.poll()

    def read_last_errors(self) -> tuple[str, ...]:
        """Return the last lines of its stderr. The program has ended.

        Its stdout may have ended before the thread has read them. A process that the program left can keep the pipe
        open, so the wait is short.
        """
        self._reader.join(ERROR_SECONDS)
        return tuple(self._error_lines)

    def wait_for_exit(self, seconds: float) -> int | None:
        """Wait for its end, at most ``seconds``. Return the exit status, or None."""
        end = time.monotonic() + seconds
        while (status := self._child.poll()) is None and time.monotonic() < end:
            time.sleep(POLL_SECONDS)  # as Popen.wait with a limit does; not every system has a pidfd
        return status

    def end(self, drain: float) -> int | None:
        """End it after its stdin was closed: wait ``drain`` seconds, then SIGTERM and SIGKILL to its group.

        Return its exit status. What it leaves in other process groups is ended by the shim.
        """
        status = self.wait_for_exit(drain)
        for number in (signal.SIGTERM, signal.SIGKILL):
            if status is None or self._has_group():
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._child.pid, number)
                status = self.wait_for_exit(TERM_SECONDS)
        return status

    def list_descendants(self) -> frozenset[int]:
        """Return the pids of the processes below it."""
        identity = processes.identify_process(self._child.pid)
        return frozenset() if identity is None else frozenset(processes.find_descendants(identity))

    def end_tools(self, spared: frozenset[int]) -> int:
        """Kill the processes below it, except those ``spared`` that ran before the turn. Return how many were killed.

        For a program whose tools survive the cancellation of their turn.
        """
        killed = 0
        for pid in self.list_descendants() - spared:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        return killed

    def _has_group(self) -> bool:
        try:
            os.killpg(self._child.pid, 0)
        except OSError:
            return False
        return True

    def _read_errors(self, pipe: IO[bytes], path: Path) -> None:
        """Read stderr until its end, whatever happens to the log: a full pipe would stop the program."""
        for line in iter(lambda: pipe.readline(MAX_LINE), b""):
            self._error_lines.append(line.decode(errors="replace").rstrip())
            with suppress(OSError, LizaError):
                log_file.cap(path, MAX_ERROR_LOG, KEPT_ERROR_LOG)
                with log_file.open_for_append(path) as log:
                    log.write(line.decode(errors="replace"))


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
