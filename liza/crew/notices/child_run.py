"""Run a child process with an input and a time limit; kill it, with its children, at the limit or on request."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from liza.rules.value_classes import Value

MAX_OUTPUT = 4096
"""Bytes of the end of the error output that are read."""
END_LIMIT = 2.0  # seconds for a killed child to be reaped


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
        with tempfile.TemporaryFile() as errors:
            with self._lock:
                if self._is_stopped:
                    return ChildEnd(None, "")
                process = self._process = subprocess.Popen(
                    args,
                    cwd=cwd,
                    env=environ,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    # A file, because a process that the child leaves behind would keep a pipe open.
                    stderr=errors,
                    start_new_session=True,
                )
            try:
                process.communicate(data, limit)
                code: int | None = process.returncode
            except subprocess.TimeoutExpired:
                code = None
            finally:
                self._end(process)
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - MAX_OUTPUT))
            return ChildEnd(code, errors.read().decode("utf-8", "replace"))

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


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
