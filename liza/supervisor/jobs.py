"""Slow work as children whose exit is an event: set-up and mergers. The loop never waits for them."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from liza import faults


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
    ended: JobEnded | None = None

    def tail(self, size: int = 2000) -> str:
        """The last of what it said."""
        return self.log.read_bytes()[-size:].decode(errors="replace").strip()

    def stop(self) -> None:
        """End the child and everything that it started."""
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


def start(order: Order, post: Callable[[JobEnded], None]) -> Job:
    """Start it in a group of its own; ``post`` hears of its end. Raises OSError when it cannot be started."""
    order.log.parent.mkdir(exist_ok=True)
    with order.log.open("wb") as out:
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
    job = Job(order.name, process, order.log)

    def wait() -> None:
        job.ended = JobEnded(order.name, process.wait())
        post(job.ended)

    threading.Thread(target=wait, name=f"wait-{order.name}", daemon=True).start()
    return job
