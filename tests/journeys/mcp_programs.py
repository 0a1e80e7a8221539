"""A program that Liza did not start, as a client of `liza mcp`: it speaks the protocol with no code of an SDK.

``Connection`` has the same calls without the processes and the protocol, for tests of what the calls do.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from contextlib import chdir, suppress
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from liza.mcp import end_watch, mcp_calls, mcp_server
from tests.conftest import commit_all
from tests.journeys.crews import BIN, Crew

LIMIT = 90.0


class Program:
    """One connection, from a directory of the program."""

    def __init__(self, directory: Path, *, name: str = "claude-code", protocol: str = "2025-06-18", **env: str) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            [str(BIN / "liza"), "mcp"],
            cwd=directory,
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._number = 0
        client = {"protocolVersion": protocol, "capabilities": {}, "clientInfo": {"name": name, "version": "1"}}
        self.greeting = self.ask("initialize", client)["result"]
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def begin(self, method: str, params: dict[str, Any]) -> int:
        """Send a request, without waiting for the answer. Return its number."""
        self._number += 1
        self.send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        return self._number

    def receive(self) -> dict[str, Any]:
        """Return the next answer. A server that does not answer is killed, and the answer is missing."""
        assert self.process.stdout is not None
        timer = threading.Timer(LIMIT, self.process.kill)
        timer.start()
        try:
            answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        finally:
            timer.cancel()
        return answer

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        number = self.begin(method, params)
        answer = self.receive()
        assert answer["id"] == number
        return answer

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool that answers."""
        result = self.ask("tools/call", {"name": tool, "arguments": arguments})["result"]
        assert not result["isError"], result
        answer: dict[str, Any] = json.loads(result["content"][0]["text"])
        return answer

    def refused(self, tool: str, **arguments: Any) -> str:
        """Call a tool that refuses; return what it said."""
        result = self.ask("tools/call", {"name": tool, "arguments": arguments})["result"]
        assert result["isError"], result
        return str(result["content"][0]["text"])

    def leave(self) -> int:
        """Close the connection, and wait until the server has ended."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        code = self.process.wait(LIMIT)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def kill(self) -> None:
        """Kill -9, as a program that ends does soon."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(LIMIT)

    def kill_all(self) -> None:
        """Kill -9 the server and what it has started, as the end of the machine does."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        started = [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
        assert started
        for pid in started:
            os.kill(pid, signal.SIGKILL)
        self.kill()


class Connection:
    """What a connection does, in this process: the start of a server and of each call is most of their CPU time."""

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch, *, name: str = "claude-code") -> None:
        patch.setattr(mcp_server, "subprocess", _SUBPROCESS)
        self._session = mcp_server.ProgramConnection(str(directory))
        self._session.client = name

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool that answers."""
        text, is_error = self._session.call_tool(tool, arguments)
        assert not is_error, text
        answer: dict[str, Any] = json.loads(text)
        return answer

    def refused(self, tool: str, **arguments: Any) -> str:
        """Call a tool that refuses; return what it said."""
        text, is_error = self._session.call_tool(tool, arguments)
        assert is_error, text
        return text

    def leave(self) -> None:
        """End as a server does whose connection was closed."""
        self._session.leave()
        self.kill()

    def kill(self) -> None:
        """End as a server does that was killed: the kernel releases its locks."""
        for lock in self._session._locks.values():
            lock.release()
        self._session._locks.clear()


def _answer_here(_words: list[str], **options: Any) -> SimpleNamespace:
    with chdir(options["cwd"]):
        return SimpleNamespace(stdout=mcp_calls.answer_call(options["input"]))


class _EndWatchHere:
    """What waits for the end of a server, in this process."""

    def __init__(self, _words: list[str], **_options: Any) -> None:
        self.stdin = BytesIO()

    def communicate(self) -> None:
        for request in end_watch.choose_last(self.stdin.getvalue().splitlines()):
            with chdir(json.loads(request)["bound"]["root"]):
                mcp_calls.answer_call(request)


_SUBPROCESS = SimpleNamespace(**vars(subprocess) | {"run": _answer_here, "Popen": _EndWatchHere})


def make_worktree(crew: Crew, name: str) -> Path:
    """Make a worktree as a program does, beside the repository."""
    path = crew.root.with_name(name)
    crew.git("worktree", "add", "-q", "--detach", str(path), "integration")
    return path


def commit(crew: Crew, worktree: Path, name: str, text: str = "right\n") -> str:
    """Commit a file in a worktree. Return the commit."""
    return commit_all(worktree, f"Write {name}", {name: text})
