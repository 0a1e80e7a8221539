"""The record of a server that could not be started: why, how often, and when it is tried again.

All supervisors of a crew share it, so that they neither start the server in turns nor report the same cause twice.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import msgspec

from liza.crew.crew import Crew
from liza.model.errors import LizaError
from liza.model.model import AwareDatetime, FrozenStruct
from liza.model.rests import restart_delay
from liza.programs.session.run_directory import read_struct
from liza.system import atomic
from liza.text.redaction import redact

MAX_REASON: Final = 400  # characters


class ServerFailure(FrozenStruct, frozen=True, kw_only=True):
    """``server-failure.json``: ``count`` starts in a row failed since ``since``, the last one at ``last``."""

    reason: str
    next: str
    count: int
    since: AwareDatetime
    last: AwareDatetime


def read_failure(crew: Crew) -> ServerFailure | None:
    """Return the failure; None if the last start succeeded, or if the record cannot be read: then it is tried again."""
    with suppress(LizaError, OSError):
        return read_struct(crew.paths.server_failure, ServerFailure)
    return None


def record_failure(crew: Crew, reason: str, step: str) -> bool:
    """Record a failed start. Return whether the reason is another than before.

    A write error is ignored: the reason is printed, and a disk that is full has an alarm of its own.
    """
    before, now = read_failure(crew), crew.clock.now()
    reason = redact(reason)[:MAX_REASON]
    count, since = (before.count + 1, before.since) if before is not None else (1, now)
    failure = ServerFailure(reason=reason, next=step, count=count, since=since, last=now)
    with suppress(LizaError, OSError):
        atomic.make_directory(crew.paths.root, crew.paths.runs)
        atomic.write(crew.paths.server_failure, msgspec.json.encode(failure) + b"\n", sync=False)
    return before is None or before.reason != reason


def clear_failure(crew: Crew) -> None:
    """Remove the record: the server runs, or a person asks for another start. Errors are ignored."""
    with suppress(OSError):
        crew.paths.server_failure.unlink()


def seconds_to_retry(crew: Crew) -> float:
    """Return the seconds until the server may be started again; 0 if no start has failed."""
    failure = read_failure(crew)
    if failure is None:
        return 0.0
    delay = restart_delay(failure.count)
    passed = (crew.clock.now() - failure.last).total_seconds()
    # After a time in the future the clock was set back since: the next start, or its failure, dates the record again.
    return max(0.0, delay - passed) if passed >= 0 else 0.0
