"""Deliver one notice to one target, in a child process with a time limit, and record what it was sent."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from liza.alarms import desktop_notices
from liza.alarms.child_run import ChildEnd, ChildRunner
from liza.alarms.notice_targets import NoticeTarget, read_address, require_target
from liza.alarms.rules.notice_rules import Notice, NoticeRecord, clean_text, failure_alarm, without_failure
from liza.model.alarm_kinds import Alarm
from liza.model.errors import LizaError, Missing
from liza.model.paths import Paths
from liza.model.target_names import DESKTOP
from liza.model.value_classes import Value
from liza.programs.session.run_directory import read_struct
from liza.system import atomic
from liza.system.locks import try_lock_path

_CHILD = (sys.executable, "-P", "-m", "liza.alarms.apprise_child")
MAX_REASON = 200


class Limits(Value):
    """Seconds for one delivery: by a service, and by a person's command."""

    service: float = 30.0
    command: float = 60.0


def deliver(target: NoticeTarget, notice: Notice, root: Path, runner: ChildRunner, limits: Limits) -> str | None:
    """Deliver a notice; return None, or why it failed in one line without secrets. ``root``: the repository."""
    try:
        if target.is_command:
            return _run_command(target.text, notice, root, runner, limits.command)
        title = f"Liza {root.name}: {notice.kind.replace('_', ' ')}"
        if target.text == DESKTOP:
            command, no_input = desktop_notices.build_command(title, notice.text), b""
            end = runner.run(command, no_input, limits.service, Path("/"))
            return _failure("the desktop", end, limits.service)
        request = {"url": read_address(target.text), "title": title, "body": notice.text}
        return _run_apprise(request, runner, limits.service)
    except LizaError as error:
        return error.message
    except (OSError, ValueError) as error:
        # ValueError: a command with a NUL. The thread of the target must not end by it.
        return f"the sender could not be started: {getattr(error, 'strerror', None) or 'a text has a NUL'}"


def check_target(target: NoticeTarget, runner: ChildRunner, limits: Limits) -> None:
    """Raise UsageError or Missing if a target cannot be used, also if apprise does not accept its URL."""
    require_target(target)
    if target.is_command or target.text == DESKTOP:
        return
    problem = _run_apprise({"url": read_address(target.text)}, runner, limits.service)
    if problem is not None:
        raise Missing(f"{target.label}: {problem}", "liza watch --help")


def _run_apprise(request: dict[str, str], runner: ChildRunner, limit: float) -> str | None:
    # On stdin: other users can read the arguments of a process. Not in the repository, where agents can write modules.
    end = runner.run(_CHILD, msgspec.json.encode(request), limit, Path("/"))
    if end.code == 1 and end.errors:
        return clean_text(end.errors, MAX_REASON)
    return _failure("the service", end, limit, shows_errors=False)


def _run_command(command: str, notice: Notice, root: Path, runner: ChildRunner, limit: float) -> str | None:
    """Run a person's shell command. The texts of the notice are never part of the command line."""
    values = {"KIND": notice.kind, "ABOUT": notice.about, "MESSAGE": notice.message, "NEXT": notice.next}
    environ = {**os.environ, **{f"LIZA_ALARM_{name}": value for name, value in values.items()}}
    fields = ("kind", "about", "message", "next", "alarms")
    data = msgspec.json.encode({name: getattr(notice, name) for name in fields}) + b"\n"
    return _failure("the command", runner.run(["/bin/sh", "-c", command], data, limit, root, environ), limit)


def _failure(what: str, end: ChildEnd, limit: float, *, shows_errors: bool = True) -> str | None:
    if end.code == 0:
        return None
    if end.code is None:
        return f"{what} took longer than {limit:g} s and was ended"
    last = clean_text(end.errors.strip().rpartition("\n")[2], MAX_REASON) if shows_errors else ""
    cause = f"failed with exit status {end.code}" if end.code > 0 else f"was ended by signal {-end.code}"
    return f"{what} {cause}" + (f": {last}" if last else "")


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
