"""The server of `liza mcp`: the SDK's protocol on stdin and stdout. The only module that imports the SDK.

Each call runs in a process of its own (`mcp_calls.py`), one after the other: the SDK takes 64 MB, and what the verbs
need would make that 95. The server holds the lock of each worktree that it has claimed a task for, and renews the
lease.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import anyio
import anyio.to_thread
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from liza import __version__
from liza.mcp.tools import INSTRUCTIONS, MAX_ARGUMENT, TOOLS, SessionCall
from liza.system.locks import Lock

MAX_REQUEST: Final = 1 << 20
"""Maximum size of a request, in bytes. A longer one is refused, and is not kept in memory."""
_CALL_LIMIT: Final = 300.0  # seconds: locks of the board, and git on a slow disk
_TOO_LARGE: Final = "too_large"
_NO_TEXT: Final = re.compile("[\0\ud800-\udfff]")
_PART: Final = 1 << 16
_ID: Final = rb'"id"\s*:\s*(-?\d{1,18}|"[^"\\]{1,200}")'


class ProgramConnection:
    """What a connection holds: the locks of its worktrees, its last claim, and the process that will hand that off."""

    def __init__(self, directory: str) -> None:
        self.directory, self.client = directory, ""
        self._locks: dict[str, Lock] = {}
        self._end_watch: subprocess.Popen[bytes] | None = None
        self._bound: dict[str, str] | None = None
        self._renew_after: float | None = None
        # Held during a call: the calls of a program come one after the other.
        self._turn = threading.RLock()
        self._wakes = threading.Condition(self._turn)

    def call_tool(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Answer a call of a tool: return the text, and whether it is an error."""
        wrong = find_wrong_argument(name, arguments)
        if wrong:
            return wrong, True
        with self._turn:
            answer = self._call(name, arguments)
            if answer.get("lock") and self._take_lock(answer["worktree"], answer["lock"]):
                answer = self._call(name, arguments)
        if error := answer.get("error"):
            return _describe_error(error), True
        return json.dumps(answer.get("answer"), ensure_ascii=False, indent=1), False

    def _take_lock(self, worktree: str, path: str) -> bool:
        """Take the lock of a worktree, and keep it. Return whether it was free."""
        lock = Lock(path, thread_local=False)
        if lock.try_acquire():
            self._locks[worktree] = lock
        return worktree in self._locks

    def _call(self, call: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Run a call in its own process, which a signal to this process group does not end, and keep its claim."""
        given = {"call": call, "directory": self.directory, "client": self.client, "arguments": arguments}
        before = self._bound
        # The program may have removed the worktree in which it was started.
        directory = before["root"] if before and not Path(self.directory).is_dir() else self.directory
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "liza.mcp.mcp_calls"],
                input=json.dumps({**given, "bound": self._bound, "held": list(self._locks)}).encode(),
                stdout=subprocess.PIPE,
                cwd=directory,
                start_new_session=True,
                timeout=_CALL_LIMIT,
                check=False,
            )
            answer = cast("dict[str, Any]", json.loads(done.stdout))
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            return {"error": {"message": f"the call could not be carried out: {error}", "hint": "liza doctor"}}
        self._bound = answer.get("bound") or before
        if self._bound != before:
            self._tell_end_watch()
        if answer.get("renew_after"):
            self._renew_after = answer["renew_after"]
            self._wakes.notify_all()
        return answer

    def renew_leases(self) -> None:
        """Renew the lease of the claim as long as this process runs. Runs in a thread."""
        with self._turn:
            while True:
                self._wakes.wait(self._renew_after)
                if self._renew_after is not None and "error" in self._call(SessionCall.RENEW, {}):
                    # It has no task now: it was submitted, or was taken away.
                    self._renew_after = None

    def _tell_end_watch(self) -> None:
        """Tell the process that hands off what is claimed; it is started first. If it cannot be, recovery does that."""
        request = json.dumps({"call": SessionCall.LEAVE, "directory": self.directory, "bound": self._bound})
        with suppress(OSError):
            if self._end_watch is None:
                words = [sys.executable, "-P", "-m", "liza.mcp.end_watch"]
                null = subprocess.DEVNULL
                self._end_watch = subprocess.Popen(
                    words, stdin=subprocess.PIPE, stdout=null, stderr=null, cwd="/", start_new_session=True
                )
            cast("BinaryIO", self._end_watch.stdin).write(request.encode() + b"\n")
            cast("BinaryIO", self._end_watch.stdin).flush()

    def leave(self) -> None:
        """Let what is claimed be handed off: the program has gone. Return when that is done."""
        with self._turn:
            for lock in self._locks.values():
                lock.release()
            if self._end_watch is not None:
                self._end_watch.communicate()


def find_wrong_argument(name: str, arguments: dict[str, Any]) -> str:
    """Return what is wrong with a call; empty if nothing is."""
    if name == _TOO_LARGE:
        return f"the request is larger than {MAX_REQUEST >> 20} MB: it was not read. Next: send less"
    tool = next((tool for tool in TOOLS if tool.name == name), None)
    if tool is None:
        return f"there is no tool {name[:100]!r}; there are {', '.join(tool.name for tool in TOOLS)}"
    for key, value in arguments.items():
        row = tool.properties.get(key)
        if row is None:
            return f"{name} has no argument {key[:100]!r}; it has {', '.join(tool.properties) or 'none'}"
        values = value if row["type"] == "array" and isinstance(value, list) else [value]
        if not all(isinstance(text, str) and len(text) <= MAX_ARGUMENT for text in values):
            return f"{key} of {name} must be text of at most {MAX_ARGUMENT} characters"
        if any(_NO_TEXT.search(text) for text in values):
            return f"{key} of {name} has a NUL or half of a surrogate pair"
    missing = [key for key in tool.required if not arguments.get(key)]
    return f"{name} needs {', '.join(missing)}" if missing else ""


def _describe_error(error: dict[str, str]) -> str:
    return f"{error['message']}. Next: {error['hint']}" if error.get("hint") else error["message"]


class Requests:
    """The lines of stdin, as the SDK reads them. One that is too long becomes a call that is refused."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def __aiter__(self) -> Requests:
        return self

    async def __anext__(self) -> str:
        """Return the next line. At the end of stdin the iteration ends."""
        line = await anyio.to_thread.run_sync(self._read_line, abandon_on_cancel=True)
        if not line:
            raise StopAsyncIteration
        return line.decode(errors="replace")

    def _read_line(self) -> bytes:
        line = self._stream.readline(MAX_REQUEST + 1)
        if len(line) <= MAX_REQUEST:
            return _replace_half_pairs(line) if b"\\ud" in line.lower() else line
        head, tail = line[:_PART], line[-_PART:]
        while not tail.endswith(b"\n") and (more := self._stream.readline(_PART)):
            tail = tail[-_PART:] + more
        return _refusal_of(head, tail)


def _replace_half_pairs(line: bytes) -> bytes:
    """Return a request with a NUL, which is refused, for each half of a surrogate pair: the SDK would not answer it."""
    with suppress(ValueError):
        text = json.dumps(json.loads(line), ensure_ascii=False)
        return re.sub("[\ud800-\udfff]", r"\\u0000", text).encode() + b"\n"
    return line


def _refusal_of(head: bytes, tail: bytes) -> bytes:
    """Return a call that is refused, with the id of a request of which only both ends were kept.

    Without its id there is nothing to answer: the line that is returned is no request.
    """
    at_end = re.search(_ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$', tail)
    at_start = re.match(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID, head) or re.match(
        rb'\s*\{\s*"method"\s*:\s*"[^"]{1,100}"\s*,\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID, head
    )
    match = at_start or at_end
    if match is None:
        return b"{}\n"
    call = b'{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"%s"}}\n'
    return call % (match[1], _TOO_LARGE.encode())


def _make_server(session: ProgramConnection) -> Server[Any]:
    async def list_tools(_: ServerRequestContext[Any], __: PaginatedRequestParams | None) -> ListToolsResult:
        rows = [
            Tool(
                name=tool.name,
                description=tool.text,
                input_schema=tool.schema,
                # Without them `codex exec` refuses each call: no person is there to approve it.
                annotations=ToolAnnotations(
                    read_only_hint=tool.only_reads, destructive_hint=False, open_world_hint=False
                ),
            )
            for tool in TOOLS
        ]
        return ListToolsResult(tools=rows)

    async def call_tool(context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        client = context.session.client_params
        if client is not None:
            session.client = client.client_info.name[:200]
        # The thread goes on if the client cancels: what a verb has begun is recorded.
        text, is_error = await anyio.to_thread.run_sync(session.call_tool, params.name, params.arguments or {})
        return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)

    return Server(
        "liza", version=__version__, instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )


async def _serve(session: ProgramConnection) -> None:
    server = _make_server(session)
    with os.fdopen(os.dup(0), "rb", closefd=True) as stream:
        async with stdio_server(stdin=cast("anyio.AsyncFile[str]", Requests(stream))) as (read, write):
            await server.run(read, write, server.create_initialization_options())


def main() -> None:
    """Serve until stdin ends or a signal comes; then hand off what is claimed."""
    session = ProgramConnection(str(Path.cwd()))

    def end(*_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        session.leave()
        os._exit(0)  # the thread that reads stdin would not end

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    threading.Thread(target=session.renew_leases, daemon=True).start()
    anyio.run(_serve, session)
    end()


if __name__ == "__main__":
    main()
