"""The process of the real program: start it, read its stderr, and end it in the order that loses least."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import IO

from liza.model.errors import LizaError
from liza.programs.session import log_file
from liza.system import crash_points, processes

ERROR_LOG = "acp-stderr.log"
MAX_ERROR_LOG, KEPT_ERROR_LOG = 4 << 20, 1 << 20  # bytes at which the log of stderr is cut, and bytes kept then
TAIL_LINES, MAX_LINE = 20, 1 << 16  # the second in bytes
ERROR_SECONDS = 1.0  # seconds to wait for the end of stderr after that of the program
TERM_SECONDS = 1.5  # seconds from SIGTERM to SIGKILL for the program's group
POLL_SECONDS = 0.02
"""Interval of the checks whether the program has ended. Its pipes say nothing: a process that it left may hold them."""


class AgentProcess:
    """The program as a child in a process group of its own, so that a signal to the sidecar's group leaves the order of
    the end to the sidecar. Raises OSError if the program cannot be started."""

    def __init__(self, argv: tuple[str, ...], cwd: str, env: dict[str, str], run_dir: Path) -> None:
        self._child = subprocess.Popen(
            argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )
        crash_points.point("acp", "spawned")
        self._error_lines: deque[str] = deque(maxlen=TAIL_LINES)
        assert self._child.stderr is not None
        self._reader = threading.Thread(
            target=self._read_errors, args=(self._child.stderr, run_dir / ERROR_LOG), name="acp-stderr", daemon=True
        )
        self._reader.start()

    @property
    def incoming(self) -> IO[bytes]:
        """Its stdout."""
        assert self._child.stdout is not None
        return self._child.stdout

    @property
    def outgoing(self) -> IO[bytes]:
        """Its stdin."""
        assert self._child.stdin is not None
        return self._child.stdin

    def exit_status(self) -> int | None:
        """Return its exit status, negative for a signal; None while it runs."""
        return self._child.poll()

    def read_last_errors(self) -> tuple[str, ...]:
        """Return the last lines of its stderr. The program has ended.

        Its stdout may have ended before the thread has read them. A process that the program left can keep the pipe
        open, so the wait is short.
        """
        self._reader.join(ERROR_SECONDS)
        return tuple(self._error_lines)

    def wait_for_exit(self, seconds: float) -> int | None:
        """Wait for its end, at most ``seconds``. Return the exit status, or None."""
        end = time.monotonic() + seconds
        while (status := self._child.poll()) is None and time.monotonic() < end:
            time.sleep(POLL_SECONDS)  # as Popen.wait with a limit does; not every system has a pidfd
        return status

    def end(self, drain: float) -> int | None:
        """End it after its stdin was closed: wait ``drain`` seconds, then SIGTERM and SIGKILL to its group.

        Return its exit status. What it leaves in other process groups is ended by the shim.
        """
        status = self.wait_for_exit(drain)
        for number in (signal.SIGTERM, signal.SIGKILL):
            if status is None or self._has_group():
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._child.pid, number)
                status = self.wait_for_exit(TERM_SECONDS)
        return status

    def list_descendants(self) -> frozenset[int]:
        """Return the pids of the processes below it."""
        identity = processes.identify_process(self._child.pid)
        return frozenset() if identity is None else frozenset(processes.find_descendants(identity))

    def end_tools(self, spared: frozenset[int]) -> int:
        """Kill the processes below it, except those ``spared`` that ran before the turn. Return how many were killed.

        For a program whose tools survive the cancellation of their turn.
        """
        killed = 0
        for pid in self.list_descendants() - spared:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        return killed

    def _has_group(self) -> bool:
        try:
            os.killpg(self._child.pid, 0)
        except OSError:
            return False
        return True

    def _read_errors(self, pipe: IO[bytes], path: Path) -> None:
        """Read stderr until its end, whatever happens to the log: a full pipe would stop the program."""
        for line in iter(lambda: pipe.readline(MAX_LINE), b""):
            self._error_lines.append(line.decode(errors="replace").rstrip())
            with suppress(OSError, LizaError):
                log_file.cap(path, MAX_ERROR_LOG, KEPT_ERROR_LOG)
                with log_file.open_for_append(path) as log:
                    log.write(line.decode(errors="replace"))
