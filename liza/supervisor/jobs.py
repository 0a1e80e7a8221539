"""Slow work as children whose exit is an event: set-up and mergers. The loop never waits for them."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from liza import faults
from liza.programs import guarded


@dataclass(frozen=True)
class JobEnded:
    """The event: this job's child is gone, with this exit code."""

    name: str
    code: int


@dataclass
class Job:
    """A child of the supervisor. ``ended`` is its event once it is over."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    guard: guarded.Guarded | None = None
    ended: JobEnded | None = None
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return time.monotonic() - self.began

    def tail(self, size: int = 2000) -> str:
        """The last of what it said."""
        return self.log.read_bytes()[-size:].decode(errors="replace").strip()

    def stop(self) -> None:
        """End the child and everything that it started."""
        if self.guard is not None:
            self.guard.end()
            return
        try:
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait(timeout=10)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@dataclass(frozen=True)
class Order:
    """What a job is to run."""

    name: str
    words: Sequence[str]
    directory: Path
    log: Path
    env: Mapping[str, str]
    guarded: bool = False
    """Whether it is a command of the project, of which nothing may be left once it is over."""


def start(order: Order, post: Callable[[JobEnded], None]) -> Job:
    """Start it in a group of its own; ``post`` hears of its end. Raises OSError when it cannot be started."""
    order.log.parent.mkdir(exist_ok=True)
    guard = None
    with order.log.open("wb") as out:
        if order.guarded:
            guard = guarded.start(order.words, order.directory, out, order.env)
            process = guard.process
        else:
            process = subprocess.Popen(
                list(order.words),
                cwd=order.directory,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=dict(order.env),
                start_new_session=True,
            )
    faults.point("spawned", "job")
    job = Job(order.name, process, order.log, guard)

    def wait() -> None:
        code = process.wait()
        if guard is not None:
            guard.end()
        job.ended = JobEnded(order.name, code)
        post(job.ended)

    threading.Thread(target=wait, name=f"wait-{order.name}", daemon=True).start()
    return job
