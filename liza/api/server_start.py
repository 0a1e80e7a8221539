"""Start the server of the worker API, and wait until it listens."""

from __future__ import annotations

import os
import select
import subprocess
import threading
from contextlib import suppress
from typing import Final

from liza.api import api_server, server_failure
from liza.crew.crew import Crew
from liza.model.errors import LizaError, read_last_message
from liza.programs.session import log_file
from liza.system import crash_points, untrusted_files
from liza.system.liza_path import liza_argv
from liza.system.locks import Lock

START_LIMIT: Final = 20.0
"""Seconds for a started server to listen."""
LOG_NAME: Final = "server.log"
MAX_LOG: Final = 1 << 20
"""Size of the server's log at which its beginning is cut, in bytes."""
LOG_STEP: Final = f"less .liza/logs/{LOG_NAME}"


def start_for_crew(crew: Crew) -> str | None:
    """Start the server for a crew that begins, and wait until it listens. Return why it does not; None if it does.

    The supervisors start it again later. Another process that starts it now is left to do it.
    """
    lock = Lock(crew.paths.server_start_lock)
    try:
        if api_server.is_serving(crew) or not lock.try_acquire():
            return None
        try:
            server_failure.clear_failure(crew)
            return start_and_record(crew)
        finally:
            lock.release()
    except (LizaError, OSError) as error:
        return str(error)


def start_and_record(crew: Crew) -> str | None:
    """Start the server; the caller holds the lock of starts. Return why that failed; None if it did not, or if the same
    reason is on record already."""
    try:
        start(crew)
    except (LizaError, OSError) as error:
        step = (error.hint if isinstance(error, LizaError) else None) or LOG_STEP
        return f"{error}: {step}" if server_failure.record_failure(crew, str(error), step) else None
    return None


def start(crew: Crew) -> None:
    """Start the server, and wait until it listens. Raises LizaError, OSError.

    It has a session of its own: Ctrl+C at a terminal does not reach it. It writes to a pipe once it listens; the kernel
    closes the pipe if it exits before.
    """
    crew.paths.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = crew.paths.logs / LOG_NAME
    log_file.cap(path, MAX_LOG, MAX_LOG // 2)
    reading, writing = os.pipe()
    try:
        with log_file.open_for_append(path) as log:
            log_size = os.fstat(log.fileno()).st_size
            crash_points.point("server", "start")
            child = _spawn(crew, log.fileno(), writing)
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
        if not api_server.is_serving(crew):  # else another one was faster
            raise _read_failure(crew, log_size, status)


def _spawn(crew: Crew, log: int, writing: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*liza_argv(), "serve", "--with-crew", "--ready-fd", str(writing)],
        cwd=crew.paths.root,
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


def _read_failure(crew: Crew, log_size: int, status: int) -> LizaError:
    """Return why the server ended, by what it wrote to its log after ``log_size`` bytes."""
    message, hint = "", ""
    with suppress(OSError, LizaError), untrusted_files.open_to_read(crew.paths.logs / LOG_NAME) as file:
        file.seek(log_size)
        message, hint = read_last_message("liza", file.read(4_000).decode(errors="replace"))
    return LizaError(message or f"it ended with exit status {status}", hint or LOG_STEP)
