"""Send alarms to targets: one thread per target, so that one that hangs delays no other and never the caller."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime

from liza.alarms import deliveries
from liza.alarms.child_run import ChildRunner
from liza.alarms.deliveries import Limits
from liza.alarms.notice_targets import NoticeTarget
from liza.alarms.rules import notice_rules
from liza.alarms.rules.notice_rules import AlarmKey, NoticeRecord
from liza.crew.crew import Crew
from liza.model.alarm_kinds import Alarm
from liza.model.errors import LizaError
from liza.model.quiet_hours import QuietHours
from liza.model.value_classes import Value, replace
from liza.system import atomic, crash_points
from liza.system.locks import try_lock_path

STOP_LIMIT = 3.0
"""Seconds to wait for the threads of all targets after their children were killed."""


class Timing(Value):
    """Seconds. ``idle``: until the time is looked at again, for the end of quiet hours. ``lock``: until a target that
    another process sends to is tried again.
    """

    first_delay: float = notice_rules.FIRST_DELAY
    idle: float = 30.0
    lock: float = 5.0
    limits: Limits = Limits()


class NoticeSender:
    """Sends alarms to one target. Of several processes with the same target, the one that holds its lock sends."""

    def __init__(self, crew: Crew, target: NoticeTarget, quiet: QuietHours | None = None, timing: Timing | None = None):
        self._crew, self._target, self._quiet, self._timing = crew, target, quiet, timing or Timing()
        self._runner = ChildRunner()
        self._changed = threading.Condition()
        self._present: tuple[Alarm, ...] | None = None
        self._cleared: set[AlarmKey] = set()
        self._is_new = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"notices to {target.label}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def update(self, alarms: Iterable[Alarm]) -> None:
        """Take over all present alarms. Returns at once."""
        wanted = notice_rules.select_alarms(alarms, self._target.label)
        with self._changed:
            keys = set(map(notice_rules.key_of, wanted))
            # An alarm that clears and returns during a delivery is a new one.
            self._cleared |= set(map(notice_rules.key_of, self._present or ())) - keys
            self._present, self._is_new = wanted, True
            self._changed.notify()

    def request_stop(self) -> None:
        """Kill the delivery that is under way; its alarm is sent by the next command."""
        self._stopping.set()
        self._runner.stop()
        with self._changed:
            self._changed.notify()

    def join(self, limit: float) -> None:
        """Wait for the end of the thread, at most ``limit`` seconds."""
        self._thread.join(limit)

    def _run(self) -> None:
        pause = 0.0
        while not self._stopping.wait(pause):
            pause = self._timing.lock
            # A disk that is full or a repository that is gone has an alarm of its own.
            with suppress(LizaError, OSError):
                paths = self._crew.paths
                atomic.make_directory(paths.root, paths.notices)
                with try_lock_path(deliveries.lock_file(paths, self._target.key), 0o600) as is_locked:
                    if is_locked:
                        self._send_while_locked()

    def _send_while_locked(self) -> None:
        record = deliveries.read_notice_record(self._crew.paths, self._target.key)
        record = replace(record, label=self._target.label)
        while not self._stopping.is_set():
            present, cleared = self._wait_for_look(record)
            if deliveries.take_request(self._crew.paths, self._target.key):
                record = self._save(record, notice_rules.without_failure(record))
            if present is not None and not self._stopping.is_set():
                record = self._send_planned(record, present, cleared)

    def _wait_for_look(self, record: NoticeRecord) -> tuple[tuple[Alarm, ...] | None, set[AlarmKey]]:
        seconds = self._timing.idle
        if record.next_try is not None:
            wait = (record.next_try - self._crew.clock.now()).total_seconds()
            seconds = min(seconds, max(wait, 0.2))
        with self._changed:
            self._changed.wait_for(lambda: self._is_new or self._stopping.is_set(), seconds)
            cleared, self._cleared, self._is_new = self._cleared, set(), False
            return self._present, cleared

    def _send_planned(self, record: NoticeRecord, present: Sequence[Alarm], cleared: set[AlarmKey]) -> NoticeRecord:
        now = self._crew.clock.now()
        plan = notice_rules.plan_notices(present, cleared, record, now, is_quiet=self._is_quiet(now))
        record = self._save(record, plan.record)
        for notice in plan.notices:
            reason = deliveries.deliver(self._target, notice, self._crew.paths.root, self._runner, self._timing.limits)
            if reason is None:
                crash_points.point("notices", "sent")
                record = self._save(record, notice_rules.record_delivery(record, notice))
            elif self._stopping.is_set():
                return record
            else:
                failed = notice_rules.record_failure_of(
                    plan, record, reason, self._crew.clock.now(), self._timing.first_delay
                )
                return self._save(record, failed)
        return record

    def _is_quiet(self, now: datetime) -> bool:
        return self._quiet is not None and self._quiet.contains(now.astimezone().time())

    def _save(self, before: NoticeRecord, after: NoticeRecord) -> NoticeRecord:
        """Write a changed record. After an error the record in memory counts, so that nothing is sent again."""
        if after != before:
            with suppress(LizaError, OSError):
                deliveries.write_notice_record(self._crew.paths, self._target.key, after)
        return after


class NoticeSenders:
    """The senders of all targets of one command. A context manager: at its end all are stopped."""

    def __init__(
        self,
        crew: Crew,
        targets: Iterable[NoticeTarget],
        quiet: QuietHours | None = None,
        timing: Timing | None = None,
    ) -> None:
        self._senders = [NoticeSender(crew, target, quiet, timing) for target in dict.fromkeys(targets)]

    def __enter__(self) -> NoticeSenders:
        for sender in self._senders:
            sender.start()
        return self

    def __exit__(self, *exception: object) -> None:
        for sender in self._senders:
            sender.request_stop()
        for sender in self._senders:
            sender.join(STOP_LIMIT)

    def update(self, alarms: Sequence[Alarm]) -> None:
        """Give all present alarms to each sender. Returns at once."""
        for sender in self._senders:
            sender.update(alarms)
