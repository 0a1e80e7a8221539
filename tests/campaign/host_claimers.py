"""Claimers of one host, each a process: they claim tasks until none is left, and print what they got.

    python -m tests.campaign.host_claimers CLONE CLAIMERS FIRST-NUMBER

It prints ``ready``, and begins with a line on stdin. An agent has one task: a claimer is another agent for each.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

from liza.crew.crew import find_crew
from liza.model.errors import LizaError, Refused, TakenMeanwhile
from liza.model.model import Status
from liza.tasks.claim import claim_task
from tests.campaign import forks

AGENTS_EACH = 1000


def claim_all(root: Path, first: int) -> None:
    """Claim until no task is left; write each claim as a line."""
    crew = find_crew(root)
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
    print("ready", flush=True)
    sys.stdin.readline()
    pids = [
        forks.fork(lambda number=number: claim_all(root, first + number * AGENTS_EACH)) for number in range(claimers)
    ]
    return sum(forks.ended(pid) != 0 for pid in pids)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
