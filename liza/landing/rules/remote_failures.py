"""Failures in a row of pushes to origin and of readings of the pull request: the next try, and the alarms. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from liza.model.alarm_table import Alarm, AlarmKind
from liza.model.backoff import backoff
from liza.model.errors import LizaError
from liza.model.model import State
from liza.model.value_classes import AwareDatetime, FrozenStruct
from liza.text.redaction import redact

RETRY_AFTER: Final = 300.0
"""Seconds after a failed push in which nothing is pushed by itself."""
MAX_POLL_SECONDS = 900.0
"""Seconds between two readings of the pull request after many failures."""
ALARM_AFTER = 3
"""Failed readings in a row that raise the alarm. Up to then a short fault of the network passes by itself."""
MAX_REASON: Final = 400
"""Characters of a recorded reason."""


class RemoteFailure(FrozenStruct, frozen=True, kw_only=True):
    """The failures in a row, since ``since``, and the last one with its command ``next``.

    ``about`` is ``origin``, or the number of a pull request.
    """

    about: str
    failures: int
    reason: str
    next: str
    since: AwareDatetime
    last: AwareDatetime


def count_failure(before: RemoteFailure | None, about: str, error: LizaError, now: datetime) -> RemoteFailure:
    """Return the record after another failure. One about something else counts from the start."""
    is_same = before is not None and before.about == about
    count, since = (before.failures, before.since) if before is not None and is_same else (0, now)
    reason = redact(error.message)[:MAX_REASON]
    return RemoteFailure(about=about, failures=count + 1, reason=reason, next=redact(error.hint), since=since, last=now)


def is_waiting(failure: RemoteFailure | None, now: datetime) -> bool:
    """Return whether a push failed so recently that none is started by itself."""
    # After a time in the future the clock was set back since.
    return failure is not None and 0 <= (now - failure.last).total_seconds() < RETRY_AFTER


def next_poll_seconds(interval: int, failures: int) -> float:
    """Return the pause before the next reading: ``interval`` seconds, doubled by each failure in a row."""
    return backoff(failures + 1, interval, max(MAX_POLL_SECONDS, interval))


def sync_alarms(state: State, failure: RemoteFailure | None) -> Iterator[Alarm]:
    """Yield the alarm for a pull request that cannot be read, if it is still the open one."""
    request = state.pull_request
    if failure is None or failure.about != f"{request.number}" or not request.is_open or failure.failures < ALARM_AFTER:
        return
    yield AlarmKind.PULL_REQUEST_UNREAD.alarm(
        "pull_request",
        number=request.number,
        failures=failure.failures,
        reason=failure.reason,
        step=failure.next or "liza sync --pr",
    )


def backup_alarms(state: State, failure: RemoteFailure | None) -> Iterator[Alarm]:
    """Yield the alarm for branches that could not be pushed, if the board wants them pushed."""
    if failure is not None and state.config.push == "auto":
        time = f"{failure.since:%Y-%m-%d %H:%MZ}"
        yield AlarmKind.PUSH_FAILED.alarm("origin", time=time, reason=failure.reason, step=failure.next)
