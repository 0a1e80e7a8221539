"""Claimers of one host, each a process: they claim tasks until none is left, and print what they got.

    python -m tests.campaign.host_claimers CLONE CLAIMERS FIRST-NUMBER

Each reads the board first: to parse it takes longer than a claim. Then ``ready`` is printed, and they begin with a line
on stdin. An agent has one task: a claimer is another agent for each.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from liza.crew.crew import find_crew
from liza.model.errors import LizaError, Refused, TakenMeanwhile
from liza.model.model import Status
from liza.tasks.claim import claim_task
from tests.campaign import forks

AGENTS_EACH = 1000


class Start:
    """The moment at which all claimers begin: when this process has closed a pipe that they read."""

    def __init__(self, claimers: int) -> None:
        self._claimers = claimers
        self._readers, self._ready = os.pipe()
        self._gate, self._opener = os.pipe()

    @contextmanager
    def wait(self) -> Iterator[None]:
        """In a claimer: run the block, and wait for the start."""
        os.close(self._opener)
        try:
            yield
        finally:
            os.write(self._ready, b".")
        os.read(self._gate, 1)

    def give(self) -> None:
        """Wait for all claimers, and for a line on stdin; let them begin."""
        for _ in range(self._claimers):
            os.read(self._readers, 1)
        print("ready", flush=True)
        sys.stdin.readline()
        os.close(self._opener)


def claim_all(root: Path, first: int, start: Start) -> None:
    """Claim until no task is left; write each claim as a line."""
    crew = find_crew(root)
    with start.wait():
        crew.board.read()
    number = first
    while any(task.status is Status.UNCLAIMED for task in crew.board.read().tasks):
        began = time.monotonic()
        try:
            claimed = claim_task(crew, f"coder-{number}")
        except TakenMeanwhile:
            continue
        except Refused:
            continue  # The last tasks are reserved.
        except LizaError as error:
            os.write(2, f"coder-{number} failed: {error.message}\n".encode())
            raise
        number += 1
        seconds = time.monotonic() - began
        os.write(1, f"{claimed.task} {claimed.run} {claimed.slot} {seconds:.3f}\n".encode())


def main(root: Path, claimers: int, first: int) -> int:
    """Start the claimers, and wait for them; return how many failed."""
    with suppress(OSError):  # In a namespace of its own the machine has another name.
        socket.sethostname(f"host-{first}")
    start = Start(claimers)
    pids = [
        forks.fork(lambda number=number: claim_all(root, first + number * AGENTS_EACH, start))
        for number in range(claimers)
    ]
    start.give()
    return sum(forks.ended(pid) != 0 for pid in pids)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
