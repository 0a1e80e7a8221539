"""Start the host process of this clone, wait for its lease, and end it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from liza.board.address import BoardAddress, read_address
from liza.board.rules.host_leases import HostLease, must_end_sessions
from liza.hosts import lease_file
from liza.hosts.local_sessions import has_supervisors
from liza.model.errors import BoardUnavailable, HostFenced, LizaError, UsageError, read_last_message
from liza.model.paths import Paths
from liza.programs.session import log_file
from liza.system.clock import boottime
from liza.system.locks import find_holder, is_flock_held, wait_for_release

LOG_NAME: Final = "host.log"
_START_LIMIT: Final = 30.0  # seconds for the first lease
_RETRY: Final = 5.0  # seconds between two starts
_END_LIMIT: Final = 15.0  # seconds
_LOOK: Final = 0.05  # seconds between two looks at the file


def require_host_address(paths: Paths) -> BoardAddress:
    """Return the address of the board of a clone that is a host. Raises UsageError."""
    address = read_address(paths.board_address)
    if address is None:
        raise UsageError("this crew has its board in files: it has one host, and no host process", "liza status")
    if not address.host:
        raise UsageError("this clone is no host: .liza/board.toml has no host", "liza help join")
    return address


def require_host(paths: Paths) -> HostLease:
    """Return the lease of this host; start the host process first if none runs.

    Raises HostFenced if the name of the host is taken, BoardUnavailable without a lease in time.
    """
    process, end = None, time.monotonic() + _START_LIMIT
    while True:
        lease = lease_file.read_lease(paths)
        is_running = is_flock_held(paths.host_lock)
        if is_running and lease is not None and not must_end_sessions(lease, boottime()):
            return lease
        if process is not None and process.poll() is not None and not is_running:
            raise HostFenced(*_read_reason(paths))
        if time.monotonic() > end:
            raise BoardUnavailable("the host process got no lease from PostgreSQL", "liza doctor")
        if process is None and not is_running:
            process = _start(paths)
        time.sleep(_LOOK)  # the lease is a file of another process, which may end without writing it


def start_if_absent(paths: Paths) -> None:
    """Start the host process unless it runs, or printed a line just now: then it may have ended at once.

    Raises LizaError, OSError.
    """
    if is_flock_held(paths.host_lock):
        return
    log = paths.logs / LOG_NAME
    if not log.exists() or not 0 <= time.time() - log.stat().st_mtime < _RETRY:
        _start(paths)


def _start(paths: Paths) -> subprocess.Popen[bytes]:
    with log_file.open_for_append(paths.logs / LOG_NAME) as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "liza.supervisor.host_work", str(paths.root)],
            # Not in the repository: agents can write modules there.
            cwd=Path("/"),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _read_reason(paths: Paths) -> tuple[str, str]:
    """Return the message and the hint of a host process that ended at once."""
    with suppress(OSError):
        message, hint = read_last_message("liza host", (paths.logs / LOG_NAME).read_text(errors="replace"))
        return message, hint
    return "the host process ended at once", "liza host list"


def stop_if_last(paths: Paths) -> None:
    """End the host process if no supervisor of this host is left. A failure is harmless: it ends by itself then."""
    with suppress(LizaError, OSError):
        pid = None if has_supervisors(paths) else find_holder(paths.host_lock)
        if pid is not None:
            os.kill(pid, signal.SIGTERM)
            wait_for_release(paths.host_lock, _END_LIMIT)
