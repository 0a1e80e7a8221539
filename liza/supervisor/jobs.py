"""Run slow work as child processes: the set-up and mergers. Their exit is an event; the loop does not wait for them."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from liza.model.errors import NotRegularFile
from liza.model.value_classes import Mutable, Value, field
from liza.programs.session import log_file, session_process
from liza.supervisor.rules.session_facts import JobKind
from liza.system import crash_points
from liza.text.formats import format_duration
from liza.text.redaction import redact

LOOK = 1.0  # seconds between two checks of the log's size and the time limit
GRACE = 10.0  # seconds from SIGTERM to SIGKILL


class JobEnded(Value):
    """Event: this job's child has exited with this status."""

    name: str
    exit_status: int


class Job(Mutable):
    """A child of the supervisor. ``end_event`` is set when it has exited.

    ``subject`` is the slot of a set-up, or the task of a merge.
    """

    kind: JobKind
    subject: str
    process: subprocess.Popen[bytes]
    log: Path
    guard: session_process.GuardedCommand | None = None
    end_event: JobEnded | None = None
    started_at: float = field(default_factory=time.monotonic)
    late: bool = False
    """Whether it was ended at its time limit."""
    has_ended: threading.Event = field(default_factory=threading.Event)

    @property
    def name(self) -> str:
        """The job for people: ``set-up t1``, ``merge task-1``."""
        return f"{self.kind} {self.subject}"

    @property
    def seconds(self) -> float:
        """Running time in seconds."""
        return time.monotonic() - self.started_at

    def wait(self, seconds: float) -> bool:
        """Wait at most so many seconds for the end of the job; return whether it has ended."""
        return self.has_ended.wait(seconds)

    def read_tail(self, size: int = 2000) -> str:
        """Return the last lines of the job's output, or the reason why its log cannot be read."""
        try:
            return redact(log_file.read_last_lines(self.log, size)).strip()
        except (OSError, NotRegularFile) as error:
            return f"its log cannot be read: {error}"

    def failure(self, status: int) -> str:
        """Describe the failure in a few words."""
        took = format_duration(self.seconds)
        limit_text = f"was ended after {took}, the limit of config.integration_timeout"
        return limit_text if self.late else f"failed with exit {status} after {took}"

    def stop(self) -> None:
        """End the child and all processes that it started."""
        if self.guard is not None:
            self.guard.terminate()
            return
        # The waiting thread may have reaped the child: then its group no longer exists.
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(timeout=GRACE)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class JobSpec(Value):
    """What a job runs. ``kind`` and ``subject`` are those of the Job."""

    kind: JobKind
    subject: str
    argv: Sequence[str]
    directory: Path
    log: Path
    env: Mapping[str, str]
    guarded: bool = False
    """Whether it is a command of the project: all its processes are ended with it."""
    limit: float = float("inf")
    """Seconds after which a guarded job is ended."""
    descriptors: tuple[int, ...] = ()
    """Open files that an unguarded job inherits."""


def start_job(spec: JobSpec, post: Callable[[JobEnded], None]) -> Job:
    """Start a job in its own process group; ``post`` receives its end. The size of its log is limited while it runs.

    Raises OSError if it cannot be started, Refused if its log is a symlink.
    """
    spec.log.parent.mkdir(exist_ok=True)
    guard = None
    with log_file.open_empty(spec.log) as out:
        if spec.guarded:
            guard = session_process.start_guarded(spec.argv, spec.directory, out, spec.env)
            process = guard.process
        else:
            process = subprocess.Popen(
                list(spec.argv),
                cwd=spec.directory,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=dict(spec.env),
                start_new_session=True,
                pass_fds=spec.descriptors,
            )
    crash_points.point("spawned", "job")
    job = Job(spec.kind, spec.subject, process, spec.log, guard)

    def watch() -> None:
        while not job.wait(max(0.0, min(LOOK, spec.limit - job.seconds))):
            log_file.cap(spec.log)
            if guard is not None and job.seconds >= spec.limit:
                job.late = True
                guard.terminate()
                return

    def wait() -> None:
        status = process.wait()
        job.has_ended.set()
        if guard is not None:
            guard.terminate()
        job.end_event = JobEnded(job.name, status)
        post(job.end_event)

    threading.Thread(target=wait, name=f"wait-{job.name}", daemon=True).start()
    threading.Thread(target=watch, name=f"watch-{job.name}", daemon=True).start()
    return job
