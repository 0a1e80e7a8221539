"""The process of the worker API's server, for other processes of the crew: whether it runs, and its end."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from liza.api.rules.address_checks import AddressFacts
from liza.api.server_failure import read_failure
from liza.crew.crew import Crew
from liza.model.errors import LizaError, LockTimeout
from liza.model.model import ProcessIdentity
from liza.model.value_classes import asdict as fields_of
from liza.system import files, lock_holders, processes, untrusted_files
from liza.system.lock_holders import describe_holder
from liza.system.locks import is_flock_held, wait_for_release

PACKAGES: Final = ("starlette", "uvicorn", "httptools")
"""Packages of the server. All else works without them."""
STOP_TIMEOUT: Final = 8.0
"""Seconds for the server to answer the requests under way and exit."""
KILL_TIMEOUT: Final = 2.0


def missing_packages() -> tuple[str, ...]:
    """Return the packages of the server that are not installed."""
    return tuple(name for name in PACKAGES if not _is_installed(name))


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def is_serving(crew: Crew) -> bool:
    """Whether the crew's server runs: its lock is held."""
    with files.convert_os_errors():
        return is_flock_held(crew.paths.server_lock)


def describe(crew: Crew) -> dict[str, Any]:
    """Return the server as `status --json` prints it; ``pid`` and ``port`` are null if it does not run.

    ``error``: why that is not known. The server is optional, so nothing else depends on it.

    ``expected``: the crew had a server, or one was started for it, and its supervisors run. ``failure``: why the last
    start failed. ``since``: when it began to listen.
    """
    try:
        running, error = is_serving(crew), None
    except (LizaError, OSError) as lock_error:
        running, error = False, str(lock_error)
    failure = None if running else _read_failure(crew)
    was_started = failure is not None or crew.paths.api_port.exists()
    return {
        "running": running,
        "expected": running or (was_started and has_supervisor(crew)),
        "since": _read_start(crew) if running else None,
        "pid": lock_holders.find_holder(crew.paths.server_lock) if running else None,
        "socket": str(crew.paths.api_socket),
        "port": read_port(crew) if running else None,
        "error": error,
        "failure": failure,
    }


def _read_failure(crew: Crew) -> dict[str, Any] | None:
    """Return why the last start failed; None if none did."""
    if not crew.paths.server_failure.exists():
        return None

    failure = read_failure(crew)
    return None if failure is None else fields_of(failure)


def _read_start(crew: Crew) -> datetime | None:
    """Return when the socket was opened; None if there is no socket."""
    with suppress(OSError):
        return datetime.fromtimestamp(crew.paths.api_socket.lstat().st_mtime, UTC).replace(microsecond=0)
    return None


def read_port(crew: Crew) -> int | None:
    """Return the port of the server on 127.0.0.1; None if it is not recorded."""
    with suppress(OSError, ValueError, LizaError):
        return int(untrusted_files.read_record(crew.paths.api_port))
    return None


def stop(crew: Crew) -> bool:
    """End the server: SIGTERM, and SIGKILL after STOP_TIMEOUT. Return whether there was one.

    Raises LockTimeout if it does not end, OSError.
    """
    if not is_serving(crew):
        return False
    pid = lock_holders.find_holder(crew.paths.server_lock)
    server = None if pid is None else processes.identify_process(pid)
    for number, limit in ((signal.SIGTERM, STOP_TIMEOUT), (signal.SIGKILL, KILL_TIMEOUT)):
        if pid is not None and is_serving(crew):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        if wait_for_release(crew.paths.server_lock, limit):
            _wait_gone(server)
            return True
    raise LockTimeout(f"the server does not end: {describe_holder(crew.paths.server_lock)}", "liza status")


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
            stop(crew)


def has_supervisor(crew: Crew) -> bool:
    """Whether a supervisor of the crew runs."""
    names = (path.name for path in crew.paths.locks.glob("supervisor-*.lock"))
    return any(crew.is_supervised(name.removeprefix("supervisor-").removesuffix(".lock")) for name in names)


ANSWER_LIMIT: Final = 3.0
"""Seconds for the server to answer."""
_REQUEST = b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def read_address_facts(crew: Crew, pid: int | None) -> AddressFacts:
    """Return the facts about the server, process ``pid``."""
    address = crew.paths.api_socket
    return AddressFacts(
        pid=pid,
        socket=address,
        directory_mode=_mode(address.parent),
        socket_mode=_mode(address),
        port=read_port(crew),
        silence=_ask(address),
    )


def _mode(path: Path) -> int | None:
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
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
