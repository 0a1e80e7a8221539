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
from liza.rules.notices.notice_rules import NoticeRecord, failure_alarm
from liza.rules.paths import Paths
from liza.rules.value_classes import replace
from liza.system import atomic
from liza.system.flock import try_lock_path

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
    """End the alarm of a target that works again. Does nothing while another process sends to it."""
    if not record_path(paths, key).exists():
        return
    with try_lock_path(lock_file(paths, key), 0o600) as is_locked:
        if is_locked:
            before = read_notice_record(paths, key)
            write_notice_record(paths, key, replace(before, failures=0, reason="", failed_at=None, next_try=None))


def failure_alarms(paths: Paths, now: datetime) -> Iterator[Alarm]:
    """Yield an alarm for each target whose last delivery failed."""
    for path in sorted(paths.notices.glob("*.json")):
        record = read_notice_record(paths, path.stem)
        alarm = failure_alarm(record)
        if alarm is not None and record.failed_at is not None and now - record.failed_at < MAX_FAILURE_AGE:
            yield alarm
