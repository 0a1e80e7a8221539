"""Run functions in forked processes, a few at a time, with a limit for CPU time, memory and duration."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

FAULT = 99
"""Exit status of a child whose function raised an exception."""
MEMORY = 4 << 30
"""Limit of the address space of a child, in bytes: a mutant may append without end."""
WALL_FACTOR = 20
"""A child may take so many times its CPU limit: it can block, and the machine may be busy."""

T = TypeVar("T")


@dataclass(frozen=True)
class Job(Generic[T]):
    """A function that a child runs. ``seconds`` of CPU time are allowed. Its return value is the exit status."""

    key: T
    seconds: int
    function: Callable[[], int]


def run(jobs: Iterable[Job[T]], processes: int, log: Path) -> Iterator[tuple[T, int]]:
    """Run each job in a child of its own; yield its key and exit status, negative for a signal, in order of their end.

    The output goes to ``log``. A child has a directory for temporary files of its own, which is removed after it.
    """
    running: dict[int, tuple[T, Path]] = {}
    waiting = iter(jobs)
    try:
        while True:
            while len(running) < processes and (job := next(waiting, None)) is not None:
                directory = Path(tempfile.mkdtemp(prefix="liza-mutant-"))
                running[_start(job, directory, log)] = (job.key, directory)
            if not running:
                return
            pid, status = os.wait()
            if pid in running:
                yield _end(pid, *running.pop(pid)), os.waitstatus_to_exitcode(status)
    finally:
        for pid, (key, directory) in running.items():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            _end(pid, key, directory)


def _start(job: Job[T], directory: Path, log: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = FAULT
    try:
        _prepare(job.seconds, directory, log)
        status = job.function()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def _prepare(seconds: int, directory: Path, log: Path) -> None:
    os.setpgid(0, 0)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    # Directories of tests are made below here, and go with it.
    os.environ["TMPDIR"] = os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.tempdir = str(directory)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    signal.alarm(seconds * WALL_FACTOR)


def _end(pid: int, key: T, directory: Path) -> T:
    """End what the child started and remove its directory."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    shutil.rmtree(directory, ignore_errors=True)
    return key
