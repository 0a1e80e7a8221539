"""``.liza/notices``: for each target a record of what it was sent, and a lock that its only sender holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from liza.programs.session.run_directory import read_struct
from liza.rules.alarm_kinds import Alarm
from liza.rules.errors import LizaError
from liza.rules.notices.notice_rules import NoticeRecord, failure_alarm, without_failure
from liza.rules.paths import Paths
from liza.system import atomic
from liza.system.locks import try_lock_path

MAX_FAILURE_AGE = timedelta(days=1)
"""Age of a failure that is not reported any more: the command that sent the notices has ended."""


def record_path(paths: Paths, key: str) -> Path:
    """Path of the record of a target."""
    return paths.notices / f"{key}.json"


def lock_file(paths: Paths, key: str) -> Path:
    """Path of the lock of a target."""
    return paths.notices / f"{key}.lock"


def read_notice_record(paths: Paths, key: str) -> NoticeRecord:
    """Return the record of a target; an empty one if it is missing or damaged: then alarms are sent again."""
    with suppress(LizaError, OSError):
        return read_struct(record_path(paths, key), NoticeRecord) or NoticeRecord()
    return NoticeRecord()


def write_notice_record(paths: Paths, key: str, record: NoticeRecord) -> None:
    """Replace the record of a target. Raises OSError."""
    atomic.make_directory(paths.root, paths.notices)
    atomic.write(record_path(paths, key), msgspec.json.encode(record) + b"\n", sync=False)


def forget_failure(paths: Paths, key: str) -> None:
    """End the alarm of a target that works again, and have its alarms sent. Raises OSError.

    Another process that sends to the target is asked to do it at its next look.
    """
    if not record_path(paths, key).exists():
        return
    with try_lock_path(lock_file(paths, key), 0o600) as is_locked:
        if is_locked:
            write_notice_record(paths, key, without_failure(read_notice_record(paths, key)))
        else:
            _request_path(paths, key).touch(0o600)


def take_request(paths: Paths, key: str) -> bool:
    """Return whether ``forget_failure`` asked the sender, once. Raises OSError."""
    try:
        _request_path(paths, key).unlink()
    except FileNotFoundError:
        return False
    return True


def _request_path(paths: Paths, key: str) -> Path:
    return paths.notices / f"{key}.retry"


def failure_alarms(paths: Paths, now: datetime) -> Iterator[Alarm]:
    """Yield an alarm for each target whose last delivery failed."""
    for path in sorted(paths.notices.glob("*.json")):
        record = read_notice_record(paths, path.stem)
        alarm = failure_alarm(record)
        if alarm is not None and record.failed_at is not None and now - record.failed_at < MAX_FAILURE_AGE:
            yield alarm
