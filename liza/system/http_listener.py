"""Answer HTTP/1.1 on sockets that are open: uvicorn with httptools, with the limits that it lacks.

The worker API and the web page use it. Added to the library: the peer of each connection, the maximum size and time of
the head of a request, and refusals in the format of the caller for input that is not HTTP. Decision 023.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Generator, Mapping, MutableMapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from liza.model.value_classes import Value
from liza.system import peers
from liza.system.peers import Peer, PeerSession, TcpPeerSession

MAX_HEAD: Final = 64 << 10
"""Maximum size of the request line and the headers, in bytes."""
HEAD_SECONDS: Final = 10.0
"""Seconds from the first byte of a head to its last one."""
KEEP_ALIVE_SECONDS: Final = 60
"""Seconds for which a connection stays open without a request: before the first one, and between two."""
STOP_SECONDS: Final = 3
"""Seconds for requests that are under way when the server stops."""
BACKLOG: Final = 1024
"""Connections that the kernel queues: 200 workers may reconnect at the same moment."""
Application = Callable[[MutableMapping[str, Any], Any, Any], Awaitable[None]]


class HeadRefusal(Value):
    """Why a request is refused before the application gets it."""

    status: int
    code: str
    detail: str


class RefusalBody(Value):
    """The body of an answer that refuses a request, and headers that it has beside those of its body."""

    media_type: str
    text: bytes
    headers: Mapping[str, str] = MappingProxyType({})


class _Limits(Value):
    """What the connections of one listener have in common."""

    format_refusal: Callable[[HeadRefusal], RefusalBody]
    head_seconds: float
    identifies_tcp: bool


class _Connection(HttpToolsProtocol):
    """One connection of a client."""

    _head_size = 0
    _read_size = 0
    _head_timer: asyncio.TimerHandle | None = None

    def __init__(self, limits: _Limits, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._limits = limits

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        is_unix = connection.family == socket.AF_UNIX
        try:
            peer = peers.read_peer(connection)
        except OSError:  # the client has gone
            transport.abort()
            return
        session = self._make_session(peer, is_unix)
        if session is None or (peer is not None and not peers.is_same_user(peer)):
            transport.abort()
            return
        self.app_state = {**self.app_state, "peer": peer, "session": session, "is_unix": is_unix}
        self._start_idle_timer()

    def _make_session(self, peer: Peer | None, is_unix: bool) -> PeerSession | TcpPeerSession | None:
        """Return how the session of the other end is found; None if there is no other end any more."""
        if is_unix or not self._limits.identifies_tcp:
            return PeerSession(peer)
        if self.client is None or self.server is None:
            return None
        host, port = self.server
        return TcpPeerSession(self.client, (host, port or 0))

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_head_timer()
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        self._read_size = len(data)
        super().data_received(data)
        is_in_head = self._is_in_head()
        self._head_size = self._head_size + self._read_size if is_in_head else 0
        if self._head_size > MAX_HEAD:
            self._refuse_size()
        if not is_in_head:
            self._stop_head_timer()
            self._start_idle_timer()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self._limits.head_seconds, self._refuse_time)

    def on_headers_complete(self) -> None:
        # The parser may get a whole head in one read.
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > MAX_HEAD:
            self._refuse_size()
            raise ValueError("the head is too large")  # the parser stops here
        # The time of the next head begins with its own first byte.
        self._stop_head_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        # What is behind the end of a message in the same read is counted when that head is complete.
        self._read_size = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(HeadRefusal(400, "invalid-request", msg.rstrip(".")))

    def _refuse_size(self) -> None:
        self._refuse(HeadRefusal(431, "headers-too-large", f"the headers have more than {MAX_HEAD >> 10} KB"))

    def _refuse_time(self) -> None:
        detail = f"the headers were not complete after {self._limits.head_seconds:g} s"
        self._refuse(HeadRefusal(408, "headers-too-slow", detail))

    def _is_in_head(self) -> bool:
        """Whether the head of a request has begun and is not complete."""
        scope = getattr(self, "scope", None)
        return scope is not None and getattr(self.cycle, "scope", None) is not scope

    def _start_idle_timer(self) -> None:
        """Close the connection if no request follows. uvicorn does that between two requests only, and not if there
        was a line end between them."""
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(KEEP_ALIVE_SECONDS, self.timeout_keep_alive_handler)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, refusal: HeadRefusal) -> None:
        """Answer and close the connection, once."""
        if self.transport.is_closing():
            return
        body = self._limits.format_refusal(refusal)
        head = (
            f"HTTP/1.1 {refusal.status} {refusal.code}\r\ncontent-type: {body.media_type}\r\n"
            f"content-length: {len(body.text)}\r\nconnection: close\r\n"
        )
        head += "".join(f"{name}: {value}\r\n" for name, value in body.headers.items())
        self.transport.write(head.encode() + b"\r\n" + body.text)
        self.transport.close()


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
    format_refusal: Callable[[HeadRefusal], RefusalBody],
    head_seconds: float = HEAD_SECONDS,
    identifies_tcp: bool = False,
) -> None:
    """Answer requests until SIGTERM, SIGINT or SIGHUP arrives, or ``stop`` is called.

    ``on_start`` is called with ``stop`` once connections are accepted, ``on_stop`` before the server waits for the
    requests under way. ``scope["state"]`` has the ``peer`` of a Unix socket, the ``session`` that it belongs to, and
    whether the connection ``is_unix``. A peer of another user is not answered. With ``identifies_tcp`` the session of a
    peer on 127.0.0.1 is looked up, too; without, no peer of TCP has a session.
    """
    config = uvicorn.Config(
        application,
        http=partial(_Connection, _Limits(format_refusal, head_seconds, identifies_tcp)),  # type: ignore[arg-type]  # makes a protocol
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
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # a warning for each write to a client that has left
    server = _QuietServer(config)

    def stop() -> None:
        if not server.should_exit:
            on_stop()
        server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop)
    serving = asyncio.create_task(server.serve(sockets=sockets))
    await on_start(stop)
    await serving


def open_loopback(port: int) -> socket.socket:
    """Return a socket that listens on 127.0.0.1; 0: on a free port. Raises OSError."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])
