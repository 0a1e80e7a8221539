"""The HTTP library: uvicorn with httptools, on sockets that are open already. The only module that knows them.

Added to the library: the credentials of the peer, a time limit and a size limit for the head of a request, and problem
documents for what is no HTTP. Decision 023.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Generator, MutableMapping
from typing import Any, Final

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from liza.api.problems import PROBLEM_TYPE, make_problem
from liza.system import peers
from liza.system.peers import TcpEnds

MAX_HEAD: Final = 64 << 10
"""Maximum size of the request line and the headers, in bytes."""
HEAD_SECONDS: Final = 10.0
"""Seconds for a head to arrive: for the first since the connection, for others since their first byte."""
KEEP_ALIVE_SECONDS: Final = 60
"""Seconds for which a connection stays open between two requests."""
REPORT_SECONDS: Final = 60.0
"""Seconds between two reports of one kind of error in the event loop."""
MAX_REPORTED: Final = 100
"""Kinds of errors that are remembered."""
STOP_SECONDS: Final = 3
"""Seconds for requests that are under way when the server stops."""
Application = Callable[[MutableMapping[str, Any], Any, Any], Awaitable[None]]


class _WorkerProtocol(HttpToolsProtocol):
    """One connection of a worker."""

    _head_size = 0
    _read_size = 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        is_unix = connection.family == socket.AF_UNIX
        try:
            peer = peers.read_peer(connection)
            ends = None if is_unix else TcpEnds(connection.getpeername(), connection.getsockname())
        except OSError:  # the client has gone
            transport.abort()
            return
        if peer is not None and not peers.is_same_user(peer):
            transport.abort()
            return
        session = peers.PeerSession(peer, ends)
        state = {"peer": peer, "session": session, "is_unix": is_unix, "abort": transport.abort}
        self.app_state = {**self.app_state, **state}
        self._limit_head()

    def data_received(self, data: bytes) -> None:
        self._read_size = len(data)
        super().data_received(data)
        self._head_size = self._head_size + self._read_size if self._is_in_head() else 0
        if self._head_size > MAX_HEAD:
            self._refuse_head()
        self._limit_head()

    def on_headers_complete(self) -> None:
        # The parser may get a whole head in one read.
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > MAX_HEAD:
            self._refuse_head()
            raise ValueError("the head is too large")  # the parser stops here
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        # What is behind the end of a message in the same read is counted when that head is complete.
        self._read_size = 0
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        self._send_problem(400, "invalid-request", msg.rstrip("."))

    def _refuse_head(self) -> None:
        self._send_problem(431, "headers-too-large", f"the headers have more than {MAX_HEAD >> 10} KB")

    def _is_in_head(self) -> bool:
        """Whether the head of a request has begun and is not complete."""
        scope = getattr(self, "scope", None)
        return scope is not None and getattr(self.cycle, "scope", None) is not scope

    def _limit_head(self) -> None:
        """Run the timer while a head is awaited, unless the limit of an idle connection runs."""
        cycle = getattr(self, "cycle", None)
        is_idle = cycle is None or (cycle.response_complete and self.timeout_keep_alive_task is None)
        if not is_idle and not self._is_in_head():
            if self._head_timer is not None:
                self._head_timer.cancel()
            self._head_timer = None
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._close_without_head)

    def _close_without_head(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            # A problem document would become a part of the response that is under way.
            self.transport.close()
        self._send_problem(408, "timeout", f"no request arrived within {HEAD_SECONDS:g} s")

    def _send_problem(self, status: int, code: str, detail: str) -> None:
        """Answer and close the connection, once."""
        if self.transport.is_closing():
            return
        body = msgspec.json.encode(make_problem(status, code, detail))
        head = (
            f"HTTP/1.1 {status} {code}\r\ncontent-type: {PROBLEM_TYPE}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


class _ErrorReports:
    """Report errors of the event loop, each kind at most once in REPORT_SECONDS.

    Without free descriptors asyncio reports each of hundreds of connections that wait, several times a second.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._reported: dict[str, float] = {}

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        message, now = str(context.get("message")), self._clock()
        if now - self._reported.get(message, -REPORT_SECONDS) < REPORT_SECONDS:
            return
        if len(self._reported) > MAX_REPORTED:
            self._reported.clear()
        self._reported[message] = now
        loop.default_exception_handler(context)


class _QuietServer(uvicorn.Server):
    """A server that leaves signals to its caller: uvicorn would raise them again when it has stopped."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


async def listen(
    application: Application,
    sockets: list[socket.socket],
    *,
    on_start: Callable[[Callable[[], None]], Awaitable[None]],
    on_stop: Callable[[], None],
) -> None:
    """Answer requests until SIGTERM, SIGINT or SIGHUP arrives, or ``stop`` is called.

    ``on_start`` is called with ``stop`` once connections are accepted, ``on_stop`` before the server waits for the
    requests under way.
    """
    config = uvicorn.Config(
        application,
        http=_WorkerProtocol,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    # A warning for each malformed request would let any client fill the log.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    server = _QuietServer(config)

    def stop() -> None:
        if not server.should_exit:
            on_stop()
        server.should_exit = True

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_ErrorReports(loop.time))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop)
    serving = asyncio.create_task(server.serve(sockets=sockets))
    await on_start(stop)
    await serving
