"""The record of branches that could not be pushed: why, how often, and when they are tried again.

All supervisors of a crew share it, so that they neither push in turns nor report the same cause twice.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

import msgspec

from liza.crew.crew import Crew
from liza.landing.rules.backup_rules import MAX_REASON, BackupFailure
from liza.model.errors import LizaError
from liza.model.value_classes import replace
from liza.programs.session.run_directory import read_struct
from liza.system import atomic
from liza.text.redaction import redact


def read_failure(crew: Crew) -> BackupFailure | None:
    """Return the failure; None if the last push succeeded, or if the record cannot be read: then it is tried again."""
    with suppress(LizaError, OSError):
        return read_struct(crew.paths.push_failure, BackupFailure)
    return None


def stamp_failure(crew: Crew) -> object:
    """Return a stamp that changes with the record. Raises OSError."""
    try:
        status = crew.paths.push_failure.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def record_failure(crew: Crew, error: LizaError, tasks: Collection[str], *, is_general: bool) -> None:
    """Record a failed push of ``tasks``, beside those that failed before. ``is_general``: no branch can be pushed.

    A write error is ignored: the push is tried again, and a disk that is full has an alarm of its own.
    """
    before, now = read_failure(crew), crew.clock.now()
    failure = BackupFailure(
        reason=redact(error.message)[:MAX_REASON],
        next=error.hint,
        tasks=tuple(sorted({*tasks, *(before.tasks if before is not None else ())})),
        is_general=is_general,
        count=before.count + 1 if before is not None else 1,
        since=before.since if before is not None else now,
        last=now,
    )
    _write(crew, failure)


def record_success(crew: Crew, tasks: Collection[str]) -> None:
    """Record that the branches of ``tasks`` were pushed. Errors are ignored: they are pushed again, to no effect."""
    before = read_failure(crew)
    left = () if before is None else tuple(task for task in before.tasks if task not in tasks)
    if before is None or not left:
        clear_failure(crew)
    else:
        _write(crew, replace(before, tasks=left, is_general=False))


def _write(crew: Crew, failure: BackupFailure) -> None:
    with suppress(LizaError, OSError):
        atomic.make_directory(crew.paths.root, crew.paths.runs)
        atomic.write(crew.paths.push_failure, msgspec.json.encode(failure) + b"\n", sync=False)


def clear_failure(crew: Crew) -> None:
    """Remove the record: everything was pushed, or a person has changed what failed. Errors are ignored."""
    with suppress(OSError):
        crew.paths.push_failure.unlink()
