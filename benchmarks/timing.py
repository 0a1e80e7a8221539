"""Measure functions and processes, interleaved with their rivals."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BARE = (sys.executable, "-I", "-S", "-c", "pass")
"""The rival of every command: an interpreter that does nothing."""


@dataclass(frozen=True)
class Spent:
    """Milliseconds of one process: by the clock, and of CPU (user and system, with the children it waited for)."""

    wall: float
    cpu: float


def milliseconds(work: Callable[[], object]) -> float:
    """Return how long a function takes."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


def interleave(works: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Run all functions in turn, ``rounds`` times, so that a change of the load reaches all; return milliseconds."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            taken[name].append(milliseconds(work))
    return taken


def run_process(words: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None, stdin: bytes = b"") -> Spent:
    """Run a process to its end and return what it spent. Raises RuntimeError if it fails."""
    start = time.perf_counter()
    process = subprocess.Popen(
        words, cwd=cwd, env={**os.environ, **(env or {})}, stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    if stdin:
        assert process.stdin is not None
        process.stdin.write(stdin)
        process.stdin.close()
    assert process.stderr is not None
    error = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = (time.perf_counter() - start) * 1000
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} ended with {process.returncode}: {error.decode(errors='replace')}")
    return Spent(wall, (usage.ru_utime + usage.ru_stime) * 1000)


def wait_for(condition: Callable[[], Any], what: str, limit: float = 60.0, pause: float = 0.002) -> Any:
    """Return the first true value of ``condition``. Raises RuntimeError after ``limit`` seconds."""
    end = time.monotonic() + limit
    while not (value := condition()):
        if time.monotonic() > end:
            raise RuntimeError(f"{what} did not happen within {limit:g} s")
        time.sleep(pause)
    return value
