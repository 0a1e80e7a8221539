"""Which alarms are sent to a target now, as which notices, and what is recorded about it. Pure.

Each alarm is sent once until it clears. An alarm is identified by its kind and what it is about, as in the alert log.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from liza.model.alarm_kinds import Alarm, AlarmKind, waits_for_person
from liza.model.backoff import backoff
from liza.model.target_names import EXEC_LABEL
from liza.model.value_classes import Value, replace
from liza.text.redaction import redact

AlarmKey = tuple[str, str]
MAX_TRIES: Final = 5
"""Number of failed deliveries in a row after which the alarms are set aside until a new one rises."""
FIRST_DELAY: Final = 10.0
"""Seconds from the first failure to the next try; each further one waits three times as long."""
MAX_DELAY: Final = 300.0
MAX_SINGLE: Final = 5
"""Number of alarms that rise together and are sent one by one; more are sent as a digest."""
MAX_TEXT: Final = 2000
"""Maximum number of characters of a message."""
MAX_ROWS: Final = 20
"""Maximum number of alarms that a digest lists."""
MAX_ROW: Final = 240
MAX_COMMAND: Final = 300
DIGEST_KIND: Final = "digest"
_MENTION = re.compile(r"@(?=(?:everyone|here|channel)\b)|<(?=[@!#])")


class NoticedAlarm(msgspec.Struct, frozen=True):
    """One alarm as it is sent: without secrets and control characters, of bounded length."""

    kind: str
    about: str
    message: str
    next: str


class Notice(msgspec.Struct, frozen=True):
    """One message. A digest has the kind ``digest``, is about ``crew``, and lists several alarms."""

    kind: str
    about: str
    message: str
    next: str
    alarms: tuple[NoticedAlarm, ...]
    keys: tuple[AlarmKey, ...]

    @property
    def text(self) -> str:
        """The message, and the command that answers it."""
        return f"{self.message}\nNext: {self.next}"


class NoticeRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one target was sent, and how often in a row that failed.

    ``sent``: alarms that were sent and have not cleared. ``held``: alarms that rose in quiet hours. ``set_aside``:
    alarms that could not be sent in MAX_TRIES tries. ``next_try``: no delivery before it.
    """

    label: str = ""
    sent: tuple[AlarmKey, ...] = ()
    held: tuple[AlarmKey, ...] = ()
    set_aside: tuple[AlarmKey, ...] = ()
    failures: int = 0
    reason: str = ""
    failed_at: datetime | None = None
    next_try: datetime | None = None


class NoticePlan(Value):
    """The notices to send now, in order, and the record without cleared alarms. ``due``: all alarms that wait."""

    notices: tuple[Notice, ...]
    record: NoticeRecord
    due: tuple[AlarmKey, ...] = ()


def key_of(alarm: Alarm) -> AlarmKey:
    """Return what identifies an alarm until it clears."""
    return alarm.kind, alarm.about


def select_alarms(alarms: Iterable[Alarm], label: str) -> tuple[Alarm, ...]:
    """Return the alarms that a target is sent: those that need a person, and the failures of other targets."""
    return tuple(
        alarm
        for alarm in alarms
        if waits_for_person(alarm.kind) or (alarm.kind == AlarmKind.NOTICES_FAILED and alarm.about != label)
    )


def plan_notices(
    present: Sequence[Alarm], cleared: Collection[AlarmKey], record: NoticeRecord, now: datetime, *, is_quiet: bool
) -> NoticePlan:
    """Return what to send. ``cleared``: alarms that were absent at a look since the last plan.

    In quiet hours nothing is sent; afterwards the alarms that are still present become one digest. Alarms that were set
    aside are sent again together with the next new one.
    """
    by_key = {key_of(alarm): alarm for alarm in reversed(present)}
    record = _without_cleared(record, by_key.keys() - set(cleared))
    unsent = tuple(dict.fromkeys(key for key in map(key_of, present) if key not in record.sent))
    if is_quiet:
        return NoticePlan((), replace(record, held=unsent, set_aside=(), next_try=None))
    if not any(key not in record.set_aside for key in unsent):
        return NoticePlan((), replace(record, next_try=None))
    if record.next_try is not None and now < record.next_try:
        return NoticePlan((), record)
    if record.failures >= MAX_TRIES:
        record = replace(record, failures=0)
    notices = _group([by_key[key] for key in unsent], record.held)
    return NoticePlan(notices, record, unsent)


def _without_cleared(record: NoticeRecord, kept: Collection[AlarmKey]) -> NoticeRecord:
    return replace(
        record,
        sent=tuple(key for key in record.sent if key in kept),
        held=tuple(key for key in record.held if key in kept),
        set_aside=tuple(key for key in record.set_aside if key in kept),
    )


def _group(alarms: Sequence[Alarm], held: Collection[AlarmKey]) -> tuple[Notice, ...]:
    late = [alarm for alarm in alarms if key_of(alarm) in held]
    rest = [alarm for alarm in alarms if key_of(alarm) not in held]
    if len(rest) > MAX_SINGLE:
        late, rest = [*late, *rest], []
    digest = [build_digest(late)] if len(late) > 1 else [build_notice(alarm) for alarm in late]
    return (*digest, *map(build_notice, rest))


def record_delivery(record: NoticeRecord, notice: Notice) -> NoticeRecord:
    """Return the record after a notice was delivered."""
    waiting = [key for key in record.held if key not in notice.keys]
    aside = [key for key in record.set_aside if key not in notice.keys]
    sent = tuple(sorted({*record.sent, *notice.keys}))
    return NoticeRecord(label=record.label, sent=sent, held=tuple(waiting), set_aside=tuple(aside))


def record_failure_of(
    plan: NoticePlan, record: NoticeRecord, reason: str, now: datetime, first_delay: float
) -> NoticeRecord:
    """Return the record after a failed delivery: it is tried again later, at most MAX_TRIES times in a row."""
    failures = record.failures + 1
    is_last = failures >= MAX_TRIES
    return replace(
        record,
        failures=failures,
        reason=clean_text(reason, MAX_ROW),
        failed_at=now,
        next_try=None if is_last else now + timedelta(seconds=retry_delay(failures, first_delay)),
        set_aside=tuple(key for key in plan.due if key not in record.sent) if is_last else record.set_aside,
    )


def without_failure(record: NoticeRecord) -> NoticeRecord:
    """Return the record of a target that works again: what was set aside is sent at the next look."""
    return replace(record, failures=0, reason="", failed_at=None, next_try=None, set_aside=())


def retry_delay(failures: int, first_delay: float = FIRST_DELAY) -> float:
    """Return the seconds from failure number ``failures`` in a row to the next try."""
    return backoff(failures, first_delay, MAX_DELAY, factor=3)


def failure_alarm(record: NoticeRecord) -> Alarm | None:
    """Return the alarm of a target that fails; None if its last delivery succeeded."""
    if not record.failures:
        return None
    after = "; they are sent with the next new one" if record.failures >= MAX_TRIES else "; it is tried again"
    times = "once" if record.failures == 1 else f"{record.failures} times in a row"
    message = f"alarms could not be sent to {record.label}, {times}: {record.reason}{after}"
    return Alarm(AlarmKind.NOTICES_FAILED, record.label, message, _trial_command(record.label))


def _trial_command(label: str) -> str:
    return 'liza watch --exec "…" --try' if label == EXEC_LABEL else f"liza watch --notify {shlex.quote(label)} --try"


def build_notice(alarm: Alarm) -> Notice:
    """Return the notice of one alarm."""
    row = _noticed(alarm, MAX_TEXT)
    return Notice(row.kind, row.about, row.message, row.next, (row,), (key_of(alarm),))


def build_digest(alarms: Sequence[Alarm]) -> Notice:
    """Return one notice of several alarms. It lists at most MAX_ROWS of them."""
    rows = tuple(_noticed(alarm, MAX_ROW) for alarm in alarms[:MAX_ROWS])
    lines = [f"{len(alarms)} alarms wait for you:", *(f"- {row.message}; next: {row.next}" for row in rows)]
    if len(alarms) > MAX_ROWS:
        lines.append(f"- and {len(alarms) - MAX_ROWS} more")
    keys = tuple(map(key_of, alarms))
    return Notice(DIGEST_KIND, "crew", "\n".join(lines), "liza status", rows, keys)


def _noticed(alarm: Alarm, length: int) -> NoticedAlarm:
    about, command = clean_text(alarm.about, MAX_ROW), clean_text(alarm.next, MAX_COMMAND)
    return NoticedAlarm(alarm.kind, about, clean_text(alarm.message, length), command)


def clean_text(text: str, length: int) -> str:
    """Return one line without secrets, control characters and words that call all members of a chat."""
    line = " ".join("".join(char if char.isprintable() else " " for char in redact(text)).split())
    line = _MENTION.sub(lambda match: f"{match.group()}\u200b", line)
    return line if len(line) <= length else f"{line[: length - 1]}…"
