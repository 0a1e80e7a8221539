"""Note commands that a run could not complete because of the board, its lock or the disk.

The note is written beside the run, so that the failure does not count against its program. The hint tells the session
to retry.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from liza.model.errors import BoardInconsistent, LizaError, LockTimeout, WriteFailed
from liza.model.paths import Paths
from liza.programs.session.run_directory import RunDir
from liza.system.clock import SystemClock
from liza.text.redaction import redact

RETRY_PAUSE: Final = 20  # seconds: the cause of the failure may have passed by then
MAX_HINT_COMMAND: Final = 200  # characters: a longer command is not repeated in a hint


def note_postponed(words: Sequence[str], error: LizaError) -> LizaError:
    """Return the error for the run. If the run is not at fault, write a note and replace the hint by a retry."""
    if not isinstance(error, BoardInconsistent | WriteFailed | LockTimeout) or not words or not _is_in_a_run():
        return error

    # The disk may be full, and the environment variable may not name a run of an agent.
    with suppress(LizaError, OSError):
        directory = RunDir(Paths(_root()), os.environ["LIZA_RUN"])
        directory.write_postponed(SystemClock().now(), words[0], redact(error.message))
    error.hint = _retry_command(words)
    return error


def note_success(words: Sequence[str]) -> None:
    """Record that the run has called a command, and remove its note of this one: it succeeded."""
    if not words or not _is_in_a_run():
        return

    with suppress(LizaError, OSError):
        directory = RunDir(Paths(_root()), os.environ["LIZA_RUN"])
        directory.note_report()
        directory.clear_postponed(SystemClock().now(), words[0])


def _is_in_a_run() -> bool:
    return bool(os.environ.get("LIZA_RUN") and os.environ.get("LIZA_ROOT"))


def _root() -> Path:
    return Path(os.environ["LIZA_ROOT"]).resolve()


def _retry_command(words: Sequence[str]) -> str:
    command = shlex.join(["liza", *words])
    if len(command) > MAX_HINT_COMMAND or not command.isprintable():
        command = f"liza {words[0]} … (the same arguments again)"
    return f"sleep {RETRY_PAUSE}; {command}"
