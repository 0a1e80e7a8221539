"""The HTTP library on the addresses of the server: uvicorn with httptools, the only module that knows them.

The addresses are a Unix socket in `.liza/run`, and a port on 127.0.0.1 whose number is in a file. The caller holds the
server's lock, so a socket file that exists was left by a server that died, and is replaced. Added to the library: the
credentials of the peer, a size limit for the head of a request, and problem documents for input that is not HTTP.
Decision 023.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import stat
from collections.abc import Awaitable, Callable, Generator, Iterable, MutableMapping
from pathlib import Path
from typing import Any, Final

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from liza.api.api_server import read_port
from liza.api.calls import PROBLEM_TYPE, make_problem
from liza.model.errors import LizaError, SystemRefused
from liza.model.paths import Paths
from liza.system import atomic, crash_points, peers
from liza.system.peers import TcpEnds

MAX_HEAD: Final = 64 << 10
"""Maximum size of the request line and the headers, in bytes."""
KEEP_ALIVE_SECONDS: Final = 60
"""Seconds for which a connection stays open between two requests."""
STOP_SECONDS: Final = 3
"""Seconds for requests that are under way when the server stops."""
BACKLOG: Final = 1024
"""Connections that the kernel queues: 200 workers may reconnect at the same moment."""
_PORT_PREFIX, _PORT_SUFFIX = "worker-", ".port"
Application = Callable[[MutableMapping[str, Any], Any, Any], Awaitable[None]]


class _WorkerProtocol(HttpToolsProtocol):
    """One connection of a worker."""

    _head_size = 0
    _read_size = 0

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
        self.app_state = {**self.app_state, "peer": peer, "session": session, "is_unix": is_unix}

    def data_received(self, data: bytes) -> None:
        self._read_size = len(data)
        super().data_received(data)
        self._head_size = self._head_size + self._read_size if self._is_in_head() else 0
        if self._head_size > MAX_HEAD:
            self._refuse_head()

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

    def send_400_response(self, msg: str) -> None:
        self._send_problem(400, "invalid-request", msg.rstrip("."))

    def _refuse_head(self) -> None:
        self._send_problem(431, "headers-too-large", f"the headers have more than {MAX_HEAD >> 10} KB")

    def _is_in_head(self) -> bool:
        """Whether the head of a request has begun and is not complete."""
        scope = getattr(self, "scope", None)
        return scope is not None and getattr(self.cycle, "scope", None) is not scope

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
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop)
    serving = asyncio.create_task(server.serve(sockets=sockets))
    await on_start(stop)
    await serving


def open_sockets(paths: Paths) -> list[socket.socket]:
    """Return the listening sockets, the Unix socket first. Raises SystemRefused, OSError."""
    listening = [_listen_unix(paths)]
    try:
        listening.append(_listen_tcp(read_port(paths.api_port)))
    except OSError as error:
        listening[0].close()
        raise SystemRefused(f"no port on 127.0.0.1 can be opened: {os.strerror(error.errno or 0)}") from error
    atomic.write(paths.api_port, _format_port(port_of(listening[1])), sync=False)
    return listening


def _listen_unix(paths: Paths) -> socket.socket:
    """Listen on `api.sock`, mode 0600, in a directory of mode 0700.

    The name is relative to the directory: a socket's address has at most 107 bytes, whatever the depth of the
    repository. Call this before any thread is started: it changes the working directory for a moment.
    """
    directory = paths.runs
    atomic.make_directory(paths.root, directory)
    if not stat.S_ISDIR(directory.lstat().st_mode):
        raise SystemRefused(f"{directory} is not a directory", f"ls -ld {directory}")
    directory.chmod(0o700)
    _remove_stale(paths.api_socket)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | getattr(socket, "SOCK_CLOEXEC", 0))
    former_mask = os.umask(0o177)
    try:
        with contextlib.chdir(directory):
            listener.bind(paths.api_socket.name)
        crash_points.point("server", "bound")
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise SystemRefused(f"{paths.api_socket} cannot be opened: {os.strerror(error.errno or 0)}") from error
    finally:
        os.umask(former_mask)
    return listener


def _remove_stale(path: Path) -> None:
    try:
        path.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        raise SystemRefused(f"{path} cannot be replaced: {os.strerror(error.errno or 0)}", f"ls -ld {path}") from error


def _listen_tcp(preferred: int | None) -> socket.socket:
    """Listen on 127.0.0.1, on the port of the last server if it is free: workers that know it reconnect."""
    for port in (preferred or 0, 0):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            if port == 0 or error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            continue
        return listener
    raise AssertionError("port 0 is tried last")


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def write_worker_ports(paths: Paths, runs: Iterable[str], port: int) -> None:
    """Write the port file of each of these living runs, and remove those of other runs. Raises OSError."""
    wanted = {paths.worker_port(run) for run in runs}
    for path in wanted:
        if read_port(path) != port:
            # What an agent put in the place of one file keeps no other run from its own.
            with contextlib.suppress(OSError, LizaError):
                atomic.write(path, _format_port(port), sync=False, label="worker.port")
    for path in paths.runs.glob(f"{_PORT_PREFIX}*{_PORT_SUFFIX}"):
        if path not in wanted:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def remove_addresses(paths: Paths) -> None:
    """Remove the socket and the port files of a server that ends. Its port stays on record for the next one."""
    for path in (paths.api_socket, *paths.runs.glob(f"{_PORT_PREFIX}*{_PORT_SUFFIX}")):
        with contextlib.suppress(OSError):
            path.unlink()


def _format_port(port: int) -> bytes:
    return f"{port}\n".encode()
