"""When the open pull request is read again by itself, and when its failures raise an alarm."""

from __future__ import annotations

import msgspec

from liza.model.alarm_kinds import Alarm, AlarmKind
from liza.model.backoff import backoff
from liza.model.model import State

MAX_POLL_SECONDS = 900.0
"""Seconds between two readings after many failures."""
ALARM_AFTER = 3
"""Failures in a row that raise the alarm. Up to then a short fault of the network passes by itself."""


class SyncFailure(msgspec.Struct, frozen=True, kw_only=True):
    """``.liza/tx/request-sync``: the failures in a row of reading pull request ``number``, and the last error."""

    number: int
    failures: int
    message: str
    hint: str


def next_poll_seconds(interval: int, failures: int) -> float:
    """Return the pause before the next reading: ``interval`` seconds, doubled by each failure in a row."""
    return backoff(failures + 1, interval, max(MAX_POLL_SECONDS, interval))


def sync_alarms(state: State, failure: SyncFailure | None) -> tuple[Alarm, ...]:
    """Return the alarm for a pull request that cannot be read, if it is still the open one; else nothing."""
    request = state.pull_request
    if failure is None or failure.number != request.number or not request.is_open or failure.failures < ALARM_AFTER:
        return ()
    message = f"pull request #{request.number} was not read {failure.failures} times in a row: {failure.message}"
    return (Alarm(AlarmKind.PULL_REQUEST_UNREAD, "pull_request", message, failure.hint or "liza sync --pr"),)
