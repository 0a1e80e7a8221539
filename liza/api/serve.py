"""`liza serve`: the process of the server, and its addresses. `system/http_listener.py` answers on them.

The addresses are a Unix socket in `.liza/run`, and a port on 127.0.0.1 whose number is in a file. The process holds the
server's lock, so a socket file that exists was left by a server that died, and is replaced. Decision 023.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import queue
import resource
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from liza.api import api_server, identity
from liza.api.api_server import read_port
from liza.api.application import ApiServer, make_application
from liza.api.calls import PROBLEM_TYPE, ServerFacts, make_problem
from liza.api.health import AgentsAnswer
from liza.api.operations import OPERATIONS
from liza.board.events import FileChanged, WatchLost
from liza.crew import layout
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.recorder import record_if_unsupervised
from liza.model.errors import LizaError, LockTimeout, Refused, SystemRefused, TokenRefused
from liza.model.paths import Paths, run_id
from liza.programs.session.run_directory import RunDir
from liza.system import atomic, crash_points, file_growth
from liza.system.http_listener import BACKLOG, HeadRefusal, RefusalBody, listen, open_loopback, port_of
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
        await listen(
            application,
            listening,
            on_start=self._start_watching,
            on_stop=self._api.hub.stop,
            format_refusal=_format_refusal,
        )

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
        with self._crew.board.watch((wakes,)) as watch:
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
                    if isinstance(event, FileChanged):
                        call_in_loop(self._api.hub.wake, event.path.name)
                    elif isinstance(event, WatchLost):
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


_PORT_PREFIX, _PORT_SUFFIX = "worker-", ".port"


def _format_refusal(refusal: HeadRefusal) -> RefusalBody:
    """Return the problem document of a request that is refused before the application gets it."""
    problem = make_problem(refusal.status, refusal.code, refusal.detail)
    return RefusalBody(PROBLEM_TYPE, msgspec.json.encode(problem))


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
        try:
            return open_loopback(port)
        except OSError as error:
            if port == 0 or error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
    raise AssertionError("port 0 is tried last")


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
