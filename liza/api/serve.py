"""`liza serve`: the process of the server, its addresses, and uvicorn with httptools, which answers on them.

The addresses are a Unix socket in `.liza/run`, and a port on 127.0.0.1 whose number is in a file. The process holds the
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
import queue
import resource
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, MutableMapping
from pathlib import Path
from typing import Any, Final

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from liza.api import api_server, identity
from liza.api.api_server import read_port
from liza.api.application import ApiServer, make_application
from liza.api.calls import PROBLEM_TYPE, ServerFacts, make_problem
from liza.api.health import AgentsAnswer
from liza.api.operations import OPERATIONS
from liza.board import events
from liza.crew import layout
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.recorder import record_if_unsupervised
from liza.model.errors import LizaError, LockTimeout, Refused, SystemRefused, TokenRefused
from liza.model.paths import Paths, run_id
from liza.programs.session.run_directory import RunDir
from liza.system import atomic, crash_points, file_growth, peers
from liza.system.locks import Lock

LOCK_TIMEOUT: Final = 2.0
"""Seconds to wait for the lock: a process that only checks whether it is free holds it for a moment."""
SWITCH_SECONDS: Final = 0.0005
"""Seconds after which a thread gives way to another one. With the default of 0.005 the event loop waits 5 ms for each
thread that computes."""
CHECK_SECONDS: Final = 1.0
"""Seconds between two looks at whether the crew still exists."""
START_SECONDS: Final = 30.0
"""Seconds after a change for which a run without a session is looked at again: its session may be starting."""
LONELY_SECONDS: Final = 5.0
"""Seconds after which a server of a crew ends that no supervisor runs for."""


def serve(
    crew: Crew,
    notify: Callable[[str], None],
    list_agents: Callable[[Crew], AgentsAnswer],
    *,
    with_crew: bool = False,
    ready_fd: int | None = None,
) -> int:
    """Answer requests until a signal arrives or .liza is deleted. Return the exit status.

    ``list_agents`` returns the agents with their operating states. ``with_crew``: end also if no supervisor runs any
    more. ``ready_fd``: a pipe to which a byte is written once the server listens. Raises Refused if the
    crew has a server already.
    """
    require_person(crew, planner=False)
    layout.refuse_damaged(crew.paths, crew.board.read())
    lock = Lock(crew.paths.server_lock)
    try:
        lock.acquire(timeout=LOCK_TIMEOUT)
    except LockTimeout as error:
        raise Refused(f"the crew has a server already: {error.message}", "liza status") from error
    lock_identity = _identity(crew.paths.server_lock)
    _allow_many_connections()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        listening = open_sockets(crew.paths)
        port = port_of(listening[1])
        notify(f"serves {crew.paths.api_socket} and 127.0.0.1:{port}")
        api_server.clear_failure(crew.paths)
        starter: int | None = os.getppid()
        starter = starter if _report_ready(ready_fd) else None
        process = _Process(crew, ServerFacts(list_agents), port, with_crew, starter)
        asyncio.run(process.run(listening))
        if _identity(crew.paths.server_lock) == lock_identity:  # else the addresses are those of another server
            remove_addresses(crew.paths)
    finally:
        lock.release()
    return 0


def _allow_many_connections() -> None:
    """Raise the limit of open files to the largest that the system allows: each connection is one."""
    _, largest = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (largest, largest))


def _report_ready(ready_fd: int | None) -> bool:
    """Write a byte to the pipe of the process that started this one, and close it. Return whether it still runs."""
    if ready_fd is None:
        return False
    try:
        os.write(ready_fd, b"1")
        os.close(ready_fd)
    except OSError:
        return False
    return True


class _Process:
    """A running server: its application, and the threads that watch the crew for it.

    ``starter``: the process that started it, and starts the supervisors once the server listens. The server does not
    end for want of a supervisor while this process runs.
    """

    def __init__(self, crew: Crew, facts: ServerFacts, port: int, with_crew: bool, starter: int | None) -> None:
        self._crew, self._port, self._with_crew = crew, port, with_crew
        self._bearers = identity.BearerCache()
        self._api = ApiServer(crew, facts, self._find_run_of_token, self._record_history)
        self._starter = starter
        self._files = _identities(crew.paths)

    async def run(self, listening: list[Any]) -> None:
        application = make_application(self._api, OPERATIONS)
        await listen(application, listening, on_start=self._start_watching, on_stop=self._api.hub.stop)

    async def _start_watching(self, stop: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()

        def call_in_loop(function: Callable[..., None], *arguments: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(function, *arguments)

        threading.Thread(target=self._watch, args=(call_in_loop,), name="watch", daemon=True).start()
        threading.Thread(target=self._check, args=(call_in_loop, stop), name="check", daemon=True).start()

    def _watch(self, call_in_loop: Callable[..., None]) -> None:
        """Wake the streams when another process wakes the watchers of an agent, and keep the port files current."""
        changes: queue.Queue[Any] = queue.Queue()
        wakes = file_growth.wake_directory(self._crew.paths)
        with events.watch(self._crew.paths, (wakes,)) as watch:
            watch.subscribe(changes)
            # A stream may have looked before the watch was active.
            call_in_loop(self._api.hub.wake)
            start_until = 0.0
            while True:
                are_started = self._write_port_files()
                # A run is on the board before its session, and nothing wakes the watchers when that starts.
                awaits_start = not are_started and time.monotonic() < start_until
                # Several changes at once need one look at the runs.
                taken = _take_all(changes, CHECK_SECONDS if awaits_start else None)
                start_until = time.monotonic() + START_SECONDS if taken else start_until
                for event in taken:
                    if isinstance(event, events.FileChanged):
                        call_in_loop(self._api.hub.wake, event.path.name)
                    elif isinstance(event, events.WatchLost):
                        call_in_loop(self._api.hub.wake)

    def _write_port_files(self) -> bool:
        """Write the port files of the open runs. Return whether each agent's newest run has a directory."""
        # A board that cannot be read is reported by the supervisors.
        with contextlib.suppress(LizaError, OSError):
            state = self._crew.board.read()
            newest = [run_id(name, agent.runs) for name, agent in state.agents.items() if agent.runs]
            living = [run for run in newest if _is_open(self._crew.paths, run)]
            write_worker_ports(self._crew.paths, living, self._port)
            return all(self._crew.run_dir(run).exists() for run in newest)
        return False

    def _check(self, call_in_loop: Callable[..., None], stop: Callable[[], None]) -> None:
        """Stop the server when its lock or socket was deleted, moved or replaced, or when its crew has ended. A crew
        starts its server again."""
        lonely = 0.0
        pause = threading.Event()
        while not pause.wait(CHECK_SECONDS):
            is_alone = self._with_crew and not api_server.has_supervisor(self._crew)
            lonely = lonely + CHECK_SECONDS if is_alone and os.getppid() != self._starter else 0.0
            if _identities(self._crew.paths) != self._files or lonely >= LONELY_SECONDS:
                call_in_loop(stop)
                return

    def _find_run_of_token(self, token: str) -> str | None:
        """Return the run whose bearer token this is; None if it is of none. Raises LizaError, OSError."""
        try:
            run_dir = identity.find_run(self._crew.paths, token)
        except TokenRefused:
            return None
        return run_dir.run if self._bearers.verify(run_dir, token) else None

    def _record_history(self) -> None:
        # A failure is harmless: the journal keeps the revisions, and the verb itself is done.
        with contextlib.suppress(LizaError, OSError):
            record_if_unsupervised(self._crew)


def _take_all(changes: queue.Queue[Any], limit: float | None) -> list[Any]:
    """Wait for an event, at most ``limit`` seconds; return it and those that wait behind it."""
    taken = []
    with contextlib.suppress(queue.Empty):
        taken.append(changes.get(timeout=limit))
        while True:
            taken.append(changes.get_nowait())
    return taken


def _is_open(paths: Paths, run: str) -> bool:
    directory = RunDir(paths, run)
    return directory.exists() and not directory.is_concluded()


def _identities(paths: Paths) -> tuple[tuple[int, int] | None, ...]:
    """Return what identifies the lock file and the socket."""
    return _identity(paths.server_lock), _identity(paths.api_socket)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what identifies a file; None if it does not exist."""
    try:
        facts = path.lstat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


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
        except OSError:  # the client has gone
            transport.abort()
            return
        if peer is not None and not peers.is_same_user(peer):
            transport.abort()
            return
        session = peers.PeerSession(peer)
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
