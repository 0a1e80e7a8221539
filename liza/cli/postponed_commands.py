"""What a run could not say for the sake of the board, its lock or the disk: noted beside the run, so that nobody blames
its program for it, and hinted at in a way that a session can follow."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from liza.rules.errors import BoardInconsistent, LizaError, LockTimeout, WriteFailed

RETRY_PAUSE: Final = 20  # seconds: what was in the way of one verb may be gone after it
MAX_HINT_COMMAND: Final = 200  # characters of what was said that a hint repeats


def note_postponed(words: Sequence[str], error: LizaError) -> LizaError:
    """The error as the run is to hear it: where it is no fault of the run, with a note left and with another hint."""
    if not isinstance(error, BoardInconsistent | WriteFailed | LockTimeout) or not words or not _is_in_a_run():
        return error
    from liza.crew.crew import SystemClock
    from liza.programs.session.run_directory import RunDir
    from liza.rules.paths import Paths
    from liza.rules.redaction import redact

    # The disk may be full, and what stands in the environment may be no run of an agent.
    with suppress(LizaError, OSError):
        directory = RunDir(Paths(_root()), os.environ["LIZA_RUN"])
        directory.write_postponed(SystemClock().now(), words[0], redact(error.message))
    error.hint = _retry_command(words)
    return error


def clear_postponed(words: Sequence[str]) -> None:
    """What the run said was carried out: it is held up by it no more."""
    if not words or not _is_in_a_run():
        return
    from liza.crew.crew import SystemClock
    from liza.programs.session.run_directory import RunDir
    from liza.rules.paths import Paths

    with suppress(LizaError, OSError):
        RunDir(Paths(_root()), os.environ["LIZA_RUN"]).clear_postponed(SystemClock().now(), words[0])


def _is_in_a_run() -> bool:
    return bool(os.environ.get("LIZA_RUN") and os.environ.get("LIZA_ROOT"))


def _root() -> Path:
    return Path(os.environ["LIZA_ROOT"]).resolve()


def _retry_command(words: Sequence[str]) -> str:
    said = shlex.join(["liza", *words])
    if len(said) > MAX_HINT_COMMAND or not said.isprintable():
        said = f"liza {words[0]} … (the same words again)"
    return f"sleep {RETRY_PAUSE}; {said}"
