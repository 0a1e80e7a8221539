"""Slow work as children whose exit is an event: set-up and mergers. The loop never waits for them."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from liza.programs.session import guarded_command, log_file
from liza.rules.durations import format_duration
from liza.rules.errors import NotRegularFile
from liza.rules.redaction import redact
from liza.system import crash_points

LOOK = 1.0  # seconds between two looks at the size of a log, and at the time limit
GRACE = 10.0  # seconds from SIGTERM to SIGKILL


@dataclass(frozen=True)
class JobEnded:
    """The event: this job's child is gone, with this exit code."""

    name: str
    exit_status: int


@dataclass
class Job:
    """A child of the supervisor. ``ended`` is its event once it is over."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    guard: guarded_command.GuardedCommand | None = None
    end_event: JobEnded | None = None
    started_at: float = field(default_factory=time.monotonic)
    late: bool = False
    """Whether it was ended at its time limit."""

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return time.monotonic() - self.started_at

    def read_tail(self, size: int = 2000) -> str:
        """The last of what it said; or why that cannot be read: its end is told all the same."""
        try:
            return redact(log_file.read_tail(self.log, size)).strip()
        except (OSError, NotRegularFile) as error:
            return f"its log cannot be read: {error}"

    def failure(self, code: int) -> str:
        """How it failed, with the last of what it said."""
        took = format_duration(self.seconds)
        late = f"was ended after {took}, the limit of config.integration_timeout"
        return f"{late if self.late else f'failed with exit {code} after {took}'}: {self.read_tail(300) or 'it said nothing'}"

    def stop(self) -> None:
        """End the child and everything that it started."""
        if self.guard is not None:
            self.guard.terminate()
            return
        # What is gone already, its thread may have waited for: then its group is gone, too.
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(timeout=GRACE)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@dataclass(frozen=True)
class JobSpec:
    """What a job is to run."""

    name: str
    argv: Sequence[str]
    directory: Path
    log: Path
    env: Mapping[str, str]
    guarded: bool = False
    """Whether it is a command of the project, of which nothing may be left once it is over."""
    limit: float = float("inf")
    """Seconds after which a guarded one is ended."""


def start_job(order: JobSpec, post: Callable[[JobEnded], None]) -> Job:
    """Start it in a group of its own; ``post`` hears of its end. Its log is kept small meanwhile.

    Raises OSError when it cannot be started, Refused where its log is a link.
    """
    order.log.parent.mkdir(exist_ok=True)
    guard = None
    with log_file.open_empty(order.log) as out:
        if order.guarded:
            guard = guarded_command.start_guarded(order.argv, order.directory, out, order.env)
            process = guard.process
        else:
            process = subprocess.Popen(
                list(order.argv),
                cwd=order.directory,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=dict(order.env),
                start_new_session=True,
            )
    crash_points.point("spawned", "job")
    job = Job(order.name, process, order.log, guard)
    over = threading.Event()

    def look_after() -> None:
        while not over.wait(max(0.0, min(LOOK, order.limit - job.seconds))):
            log_file.cap(order.log)
            if guard is not None and job.seconds >= order.limit:
                job.late = True
                guard.terminate()
                return

    def wait() -> None:
        code = process.wait()
        over.set()
        if guard is not None:
            guard.terminate()
        job.end_event = JobEnded(order.name, code)
        post(job.end_event)

    threading.Thread(target=wait, name=f"wait-{order.name}", daemon=True).start()
    threading.Thread(target=look_after, name=f"look-{order.name}", daemon=True).start()
    return job
