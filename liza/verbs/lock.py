"""lock: run a command while nobody else writes the board."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from liza.board.lock import Lock
from liza.rules.errors import Missing
from liza.verbs.caller import human_or
from liza.verbs.crew import Crew


def lock(crew: Crew, command: Sequence[str]) -> int:
    """The exit code of ``command``, run with the board's lock held; 128 + n where signal n ended it.

    What it changes is judged like any edit from outside, by whoever takes the lock next. Raises LockTimeout, Missing,
    Refused inside a session.
    """
    human_or(crew, planner=False)
    with Lock(crew.paths.state_lock):
        try:
            process = subprocess.Popen(list(command))
        except OSError as wrong:
            raise Missing(f"{command[0]!r} cannot be run: {wrong.strerror}", f"command -v {command[0]}") from None
        code = _waited(process)
    return code if code >= 0 else 128 - code


def _waited(process: subprocess.Popen[bytes]) -> int:
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            # The terminal told the command too; the lock must not be let go before it has ended.
            continue
