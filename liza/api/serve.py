"""`liza serve`: the process of the server, from its lock to its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from liza.api import api_server, identity, listener
from liza.api.application import ApiServer, make_application
from liza.api.calls import ServerFacts
from liza.api.health import AgentsAnswer
from liza.api.operations import OPERATIONS
from liza.board import events
from liza.crew import layout
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.recorder import record_if_unsupervised
from liza.model.errors import LizaError, LockTimeout, Refused, TokenRefused
from liza.model.paths import Paths, run_id
from liza.system import file_growth
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
    layout.refuse_damaged(crew, crew.board.read())
    lock = Lock(crew.paths.server_lock)
    try:
        lock.acquire(timeout=LOCK_TIMEOUT)
    except LockTimeout as error:
        raise Refused(f"the crew has a server already: {error.message}", "liza status") from error
    lock_identity = _identity(crew.paths.server_lock)
    _allow_many_connections()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        listening = listener.open_sockets(crew.paths)
        port = listener.port_of(listening[1])
        notify(f"serves {crew.paths.api_socket} and 127.0.0.1:{port}")
        api_server.clear_failure(crew.paths)
        starter: int | None = os.getppid()
        starter = starter if _report_ready(ready_fd) else None
        process = _Process(crew, ServerFacts(list_agents), port, with_crew, starter)
        asyncio.run(process.run(listening))
        if _identity(crew.paths.server_lock) == lock_identity:  # else the addresses are those of another server
            listener.remove_addresses(crew.paths)
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
        await listener.listen(application, listening, on_start=self._start_watching, on_stop=self._api.hub.stop)

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
            living = [run for run in newest if _is_open(self._crew, run)]
            listener.write_worker_ports(self._crew.paths, living, self._port)
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


def _is_open(crew: Crew, run: str) -> bool:
    directory = crew.run_dir(run)
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
