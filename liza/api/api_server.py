"""The process of the worker API's server, for other processes of the crew: its start, whether it runs, and its end.

Each supervisor that `liza up` started has a thread that keeps the server running. The record of a start that failed is
shared by all supervisors, so that they neither start it in turns nor report the same cause twice. No work waits for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from liza.crew.crew import Crew
from liza.model.backoff import LONG_LIFE, MAX_DELAY, restart_delay
from liza.model.errors import LizaError, LockTimeout, read_last_message
from liza.model.model import ProcessIdentity
from liza.model.paths import Paths
from liza.model.value_classes import AwareDatetime, FrozenStruct
from liza.programs.session import log_file
from liza.programs.session.run_directory import read_struct
from liza.system import atomic, crash_points, locks, processes, untrusted_files
from liza.system.files import convert_os_errors
from liza.system.installation import liza_argv
from liza.system.locks import Lock, describe_holder, is_flock_held, wait_for_release
from liza.text.redaction import redact

PACKAGES: Final = ("starlette", "uvicorn", "httptools")
"""Packages of the server. All else works without them."""
START_LIMIT: Final = 20.0
"""Seconds for a started server to listen."""
STOP_TIMEOUT: Final = 8.0
"""Seconds for the server to answer the requests under way and exit."""
KILL_TIMEOUT: Final = 2.0
ANSWER_LIMIT: Final = 3.0
"""Seconds for the server to answer the doctor."""
LOOK_SECONDS: Final = 0.5
"""Seconds between two looks at a server that another supervisor starts."""
LOG_NAME: Final = "server.log"
MAX_LOG: Final = 1 << 20
"""Size of the server's log at which its beginning is cut, in bytes."""
LOG_STEP: Final = f"less .liza/logs/{LOG_NAME}"
MAX_REASON: Final = 400  # characters
_REQUEST: Final = b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


class ServerFailure(FrozenStruct, frozen=True, kw_only=True):
    """``server-failure.json``: ``count`` starts in a row failed since ``since``, the last one at ``last``."""

    reason: str
    next: str
    count: int
    since: AwareDatetime
    last: AwareDatetime


def missing_packages() -> tuple[str, ...]:
    """Return the packages of the server that are not installed."""
    return tuple(name for name in PACKAGES if not _is_installed(name))


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def is_serving(paths: Paths) -> bool:
    """Whether the crew's server runs: its lock is held."""
    with convert_os_errors():
        return is_flock_held(paths.server_lock)


class ServerReport(FrozenStruct, frozen=True, kw_only=True):
    """The server as `status --json` prints it; ``pid`` and ``port`` are null if it does not run.

    ``error``: why that is not known. The server is optional, so nothing else depends on it.

    ``expected``: the crew had a server, or one was started for it, and its supervisors run. ``failure``: why the last
    start failed. ``since``: when it began to listen.
    """

    running: bool
    expected: bool
    since: datetime | None
    pid: int | None
    socket: str
    port: int | None
    error: str | None
    failure: ServerFailure | None


def describe(crew: Crew) -> ServerReport:
    """Return the facts about the server of the crew."""
    paths = crew.paths
    try:
        running, error = paths.server_lock.exists() and is_serving(paths), None
    except (LizaError, OSError) as lock_error:
        running, error = False, str(lock_error)
    failure = read_failure(paths) if not running and paths.server_failure.exists() else None
    was_started = failure is not None or paths.api_port.exists()
    return ServerReport(
        running=running,
        expected=running or (was_started and has_supervisor(crew)),
        since=_read_start(paths) if running else None,
        pid=locks.find_holder(paths.server_lock) if running else None,
        socket=str(paths.api_socket),
        port=read_port(paths.api_port) if running else None,
        error=error,
        failure=failure,
    )


def _read_start(paths: Paths) -> datetime | None:
    """Return when the socket was opened; None if there is no socket."""
    with suppress(OSError):
        return datetime.fromtimestamp(paths.api_socket.lstat().st_mtime, UTC).replace(microsecond=0)
    return None


def read_port(path: Path) -> int | None:
    """Return the port in a port file; None if there is no such file, or it is damaged."""
    with suppress(OSError, ValueError, LizaError):
        text = untrusted_files.read_record(path).decode()
        return port if 0 < (port := int(text)) < 1 << 16 else None
    return None


def has_supervisor(crew: Crew) -> bool:
    """Whether a supervisor of the crew runs."""
    names = (path.name for path in crew.paths.locks.glob("supervisor-*.lock"))
    return any(crew.is_supervised_here(name.removeprefix("supervisor-").removesuffix(".lock")) for name in names)


def find_fault(paths: Paths, pid: int | None) -> tuple[str, str] | None:
    """Return what keeps workers from a server that runs, process ``pid``, and the command that removes the cause; None
    if it answers. It is started again after its end."""
    silence = _ask(paths.api_socket)
    if silence:
        # A process that was stopped gets no SIGTERM.
        step = "liza down" if pid is None else f"kill -9 {pid}"
        return f"the server, process {pid}, does not answer: {silence}", step
    if read_port(paths.api_port) is None:
        return "the record of its port is gone or damaged", "liza down" if pid is None else f"kill {pid}"
    return None


def _ask(address: Path) -> str:
    """Ask the server for its health. Return why there was no answer; an empty string if there was one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_LIMIT)
        try:
            # The path of the directory may be too long for the address of a socket.
            with contextlib.chdir(address.parent):
                connection.connect(address.name)
            connection.sendall(_REQUEST)
            answer = connection.recv(64)
        except TimeoutError:
            return f"no answer within {ANSWER_LIMIT:.0f} s"
        except OSError as error:
            return error.strerror or str(error)
    return "" if answer.startswith(b"HTTP/1.1 ") else "it closed the connection"


def start_for_crew(crew: Crew) -> str | None:
    """Start the server for a crew that begins, and wait until it listens. Return why it does not; None if it does.

    The supervisors start it again later. Another process that starts it now is left to do it.
    """
    lock = Lock(crew.paths.server_start_lock)
    try:
        if is_serving(crew.paths) or not lock.try_acquire():
            return None
        try:
            clear_failure(crew.paths)
            return start_and_record(crew)
        finally:
            lock.release()
    except (LizaError, OSError) as error:
        return str(error)


def start_and_record(crew: Crew) -> str | None:
    """Start the server; the caller holds the lock of starts. Return why that failed; None if it did not, or if the same
    reason is on record already."""
    try:
        start(crew.paths)
    except (LizaError, OSError) as error:
        step = (error.hint if isinstance(error, LizaError) else None) or LOG_STEP
        return f"{error}: {step}" if record_failure(crew, str(error), step) else None
    return None


def start(paths: Paths) -> None:
    """Start the server, and wait until it listens. Raises LizaError, OSError.

    It has a session of its own: Ctrl+C at a terminal does not reach it. It writes to a pipe once it listens; the kernel
    closes the pipe if it exits before.
    """
    paths.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = paths.logs / LOG_NAME
    log_file.cap(path, MAX_LOG, MAX_LOG // 2)
    reading, writing = os.pipe()
    try:
        with log_file.open_for_append(path) as log:
            log_size = os.fstat(log.fileno()).st_size
            crash_points.point("server", "start")
            child = _spawn(paths, log.fileno(), writing)
        os.close(writing)
        writing = -1
        is_listening, is_late = _wait_for_byte(reading)
    finally:
        for descriptor in (reading, writing):
            if descriptor >= 0:
                os.close(descriptor)
    if is_late:
        child.kill()  # else each further try would add one
    if is_listening or is_late:
        # It is waited for, so that its end leaves no zombie.
        threading.Thread(target=child.wait, name="server-wait", daemon=True).start()
    if is_late:
        raise LizaError(f"it did not listen within {START_LIMIT:g} s", LOG_STEP)
    if not is_listening:
        status = child.wait()
        if not is_serving(paths):  # else another one was faster
            raise _read_end(paths, log_size, status)


def _spawn(paths: Paths, log: int, writing: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*liza_argv(), "serve", "--with-crew", "--ready-fd", str(writing)],
        cwd=paths.root,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        pass_fds=(writing,),
    )


def _wait_for_byte(reading: int) -> tuple[bool, bool]:
    """Wait for a byte or the end of the pipe. Return whether a byte came, and whether the time is over."""
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    if not poll.poll(START_LIMIT * 1000):
        return False, True
    return bool(os.read(reading, 1)), False


def _read_end(paths: Paths, log_size: int, status: int) -> LizaError:
    """Return why the server ended, by what it wrote to its log after ``log_size`` bytes."""
    message, hint = "", ""
    with suppress(OSError, LizaError), untrusted_files.open_to_read(paths.logs / LOG_NAME) as file:
        file.seek(log_size)
        message, hint = read_last_message("liza", file.read(4_000).decode(errors="replace"))
    return LizaError(message or f"it ended with exit status {status}", hint or LOG_STEP)


def read_failure(paths: Paths) -> ServerFailure | None:
    """Return the failure; None if the last start succeeded, or if the record cannot be read: then it is tried again."""
    with suppress(LizaError, OSError):
        return read_struct(paths.server_failure, ServerFailure)
    return None


def record_failure(crew: Crew, reason: str, step: str) -> bool:
    """Record a failed start. Return whether the reason is another than before.

    A write error is ignored: the reason is printed, and a disk that is full has an alarm of its own.
    """
    before, now = read_failure(crew.paths), crew.clock.now()
    reason = redact(reason)[:MAX_REASON]
    count, since = (before.count + 1, before.since) if before is not None else (1, now)
    failure = ServerFailure(reason=reason, next=step, count=count, since=since, last=now)
    with suppress(LizaError, OSError):
        atomic.make_directory(crew.paths.root, crew.paths.runs)
        atomic.write(crew.paths.server_failure, msgspec.json.encode(failure) + b"\n", sync=False)
    return before is None or before.reason != reason


def clear_failure(paths: Paths) -> None:
    """Remove the record: the server runs, or a person asks for another start. Errors are ignored."""
    with suppress(OSError):
        paths.server_failure.unlink()


def seconds_to_retry(crew: Crew) -> float:
    """Return the seconds until the server may be started again; 0 if no start has failed."""
    failure = read_failure(crew.paths)
    if failure is None:
        return 0.0
    delay = restart_delay(failure.count)
    passed = (crew.clock.now() - failure.last).total_seconds()
    # After a time in the future the clock was set back since: the next start, or its failure, dates the record again.
    return max(0.0, delay - passed) if passed >= 0 else 0.0


def stop(paths: Paths) -> bool:
    """End the server: SIGTERM, and SIGKILL after STOP_TIMEOUT. Return whether there was one.

    Raises LockTimeout if it does not end, OSError.
    """
    if not is_serving(paths):
        return False
    pid = locks.find_holder(paths.server_lock)
    server = None if pid is None else processes.identify_process(pid)
    for number, limit in ((signal.SIGTERM, STOP_TIMEOUT), (signal.SIGKILL, KILL_TIMEOUT)):
        if pid is not None and is_serving(paths):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        if wait_for_release(paths.server_lock, limit):
            _wait_gone(server)
            return True
    raise LockTimeout(f"the server does not end: {describe_holder(paths.server_lock)}", "liza status")


def _wait_gone(server: ProcessIdentity | None) -> None:
    """Wait until the process has exited: it released its lock before."""
    handle = None if server is None else processes.open_pidfd(server)
    if handle is not None:
        try:
            processes.wait_readable(handle, KILL_TIMEOUT)
        finally:
            os.close(handle)


def stop_if_last(crew: Crew) -> None:
    """End the server if no supervisor of the crew runs. A failure is harmless: it ends by itself then."""
    with suppress(LizaError, OSError):
        if not has_supervisor(crew):
            stop(crew.paths)


class ServerKeeper(threading.Thread):
    """The thread of one supervisor. ``close`` ends it, not the server, which ends when no supervisor runs."""

    def __init__(self, crew: Crew, notify: Callable[[str], None]) -> None:
        super().__init__(name="server-keeper", daemon=True)
        self._crew, self._notify = crew, notify
        self._closed = threading.Event()
        self._failures = 0

    def close(self) -> None:
        self._closed.set()

    def run(self) -> None:
        if missing_packages():
            return  # `liza up` has said so
        delay = 0.0
        while not self._closed.wait(delay):
            delay = self._keep()

    def _keep(self) -> float:
        """Start the server unless it runs, and wait for its end. Return the seconds until the next call."""
        delay = self._ensure_served()
        if delay:
            return delay
        started = self._crew.clock.monotonic()
        self._wait_for_end()
        is_short = self._crew.clock.monotonic() - started < LONG_LIFE
        self._failures = self._failures + 1 if is_short else 0
        return restart_delay(self._failures)

    def _ensure_served(self) -> float:
        """Start the server unless it runs. Return the seconds until the next try; 0 if it runs.

        Another supervisor may start it now, `down` may end it, or the last start has failed.
        """
        lock = Lock(self._crew.paths.server_start_lock)
        try:
            if is_serving(self._crew.paths):
                return 0.0
            if is_flock_held(self._crew.paths.down_lock) or not lock.try_acquire():
                return LOOK_SECONDS
            rest = seconds_to_retry(self._crew)
            if rest > 0 or self._closed.is_set() or is_serving(self._crew.paths):
                return rest
            reason = start_and_record(self._crew)
            if reason is not None and not self._closed.is_set():
                self._notify(f"! the worker API cannot be served, work continues: {reason}")
            return seconds_to_retry(self._crew)
        except (LizaError, OSError):
            # Such as a directory that was deleted: the supervisor itself reports it.
            return MAX_DELAY
        finally:
            lock.release()

    def _wait_for_end(self) -> None:
        """Wait until no process holds the server's lock."""
        with suppress(OSError, LizaError):
            descriptor = untrusted_files.open_regular(self._crew.paths.server_lock)
            try:
                # Shared: all supervisors wait at the same time, and get it at the same time.
                fcntl.flock(descriptor, fcntl.LOCK_SH)
            finally:
                os.close(descriptor)
