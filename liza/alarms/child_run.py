"""Run a child process with an input and a time limit; kill it, with its process group, at the limit or on request.

The group is also killed when this process dies, however it dies.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from liza.model.value_classes import Value
from liza.system import crash_points

MAX_OUTPUT = 4096
"""Bytes of the end of the error output that are read."""
MAX_LAST_OUTPUT = 1 << 20
"""Bytes of error output that are read after the end of the child: one that it left behind may print for ever."""
END_LIMIT = 2.0  # seconds for a killed child to be reaped
_POLL_SECONDS: Final = 0.05  # seconds between two checks whether the child has ended although its output is still open
_PART: Final = 1 << 16  # bytes

_GUARDED: Final = """\
((exec <&1 >/dev/null 2>&1; read -r _; kill -KILL 0) &)
exec "$@" >/dev/null
"""
"""Script of the shell that becomes the child. Its descriptor 1 is a pipe whose other end only this process has.

A second process of the same group waits for the end of that pipe, which the kernel closes when this process dies. It
is no child of the program, which may wait for all of its children.
"""


class ChildEnd(Value):
    """How a child ended. ``code`` is None if it was killed at its time limit. ``errors``: the end of its stderr."""

    code: int | None
    errors: str


class ChildRunner:
    """Runs one child at a time for one thread; another thread may call ``stop``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    def run(
        self, args: Sequence[str], data: bytes, limit: float, cwd: Path, environ: Mapping[str, str] | None = None
    ) -> ChildEnd:
        """Run a program with ``data`` as its input, for at most ``limit`` seconds. Raises OSError."""
        lifeline, end_of_lifeline = os.pipe()
        try:
            with self._lock:
                if self._is_stopped:
                    return ChildEnd(None, "")
                process = self._process = subprocess.Popen(
                    ["/bin/sh", "-c", _GUARDED, "sh", *args],
                    cwd=cwd,
                    env=environ,
                    stdin=subprocess.PIPE,
                    stdout=lifeline,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            crash_points.point("spawned", "notice")
            try:
                errors = _exchange(process, data, time.monotonic() + limit)
                return ChildEnd(process.returncode, errors.decode("utf-8", "replace"))
            finally:
                self._end(process)
        finally:
            os.close(lifeline)
            os.close(end_of_lifeline)

    def stop(self) -> None:
        """Kill the child that runs, and start no other one."""
        with self._lock:
            self._is_stopped = True
            if self._process is not None:
                _kill_group(self._process)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill what is left of the child's process group, and reap the child."""
        with self._lock:
            _kill_group(process)
            self._process = None
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_LIMIT)
        for pipe in (process.stdin, process.stderr):
            if pipe is not None:
                # What a child did not read is not written.
                with suppress(OSError):
                    pipe.close()


def _exchange(process: subprocess.Popen[bytes], data: bytes, deadline: float) -> bytes:
    """Write ``data`` to the child and wait for its end, until the deadline; return the end of its error output.

    All of the output is read, but only its end is kept: a file of it could fill the disk. A process that the child
    left behind may keep the pipe open, so the end of the child is an end too.
    """
    assert process.stdin is not None
    assert process.stderr is not None
    errors, rest = b"", memoryview(data)
    with selectors.DefaultSelector() as selector:
        for pipe in (process.stdin, process.stderr):
            os.set_blocking(pipe.fileno(), False)
        selector.register(process.stderr, selectors.EVENT_READ)
        selector.register(process.stdin, selectors.EVENT_WRITE)
        while process.poll() is None and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(min(left, _POLL_SECONDS)):
                if key.fileobj is process.stdin:
                    rest = _write_part(process, rest)
                    if not rest:
                        selector.unregister(process.stdin)
                        process.stdin.close()
                elif (part := os.read(key.fd, _PART)) == b"":
                    selector.unregister(process.stderr)
                else:
                    errors = (errors + part)[-MAX_OUTPUT:]
            if not selector.get_map():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, deadline - time.monotonic()))
    return _read_rest(process.stderr.fileno(), errors)


def _write_part(process: subprocess.Popen[bytes], data: memoryview) -> memoryview:
    """Write what the pipe takes; return what is left. Nothing is left for a child that does not read."""
    assert process.stdin is not None
    try:
        return data[os.write(process.stdin.fileno(), data) :]
    except BlockingIOError:
        return data
    except BrokenPipeError:
        return data[:0]


def _read_rest(descriptor: int, errors: bytes) -> bytes:
    """Return the end of the output, with what the pipe has now."""
    with suppress(BlockingIOError):
        for _ in range(MAX_LAST_OUTPUT // _PART):
            part = os.read(descriptor, _PART)
            if not part:
                break
            errors = (errors + part)[-MAX_OUTPUT:]
    return errors


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
