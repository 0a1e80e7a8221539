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

from liza.model.alarm_table import Alarm, AlarmKind, waits_for_person
from liza.model.model import State
from liza.model.setting_limits import EXEC_LABEL, is_link
from liza.model.value_classes import Value, replace
from liza.text.redaction import redact

AlarmKey = tuple[str, str]
RETRY_AFTER: Final = timedelta(seconds=60)
"""Time after a failure in which nothing is sent to that target."""
MAX_FAILURE_AGE: Final = timedelta(days=1)
"""Age of a failure that is not reported any more: the command that sent the notices has ended."""
MAX_SINGLE: Final = 5
"""Number of alarms that are sent one by one; more are sent as a digest."""
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
    link: str


class Notice(msgspec.Struct, frozen=True):
    """One message. A digest has the kind ``digest``, is about ``crew``, and lists several alarms."""

    kind: str
    about: str
    message: str
    next: str
    link: str
    alarms: tuple[NoticedAlarm, ...]
    keys: tuple[AlarmKey, ...]

    @property
    def text(self) -> str:
        """The message, the command that answers it, and the address of its page if there is one."""
        return "\n".join((self.message, f"Next: {self.next}", *([self.link] if self.link else [])))


class PageLinks(Value):
    """The addresses of the pages of a crew. ``base`` is empty if a person set none: then no notice has a link."""

    base: str = ""
    tasks: Collection[str] = ()
    agents: Collection[str] = ()

    def address_of(self, about: str) -> str:
        """Return the address of the page of a task or an agent, for all else that of the first page."""
        if not self.base:
            return ""
        if about in self.tasks:
            return f"{self.base}/tasks/{about}"
        return f"{self.base}/sessions/{about}" if about in self.agents else f"{self.base}/"


NO_LINKS: Final = PageLinks()


def page_links(state: State) -> PageLinks:
    """Return the addresses of the pages of the tasks and agents on the board."""
    base = state.config.notify.link or ""
    if not is_link(base):
        return NO_LINKS
    return PageLinks(base.rstrip("/"), frozenset(task.id for task in state.tasks), frozenset(state.agents))


class NoticeRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a target was sent, and why its last delivery failed. ``label``: the target without its address."""

    label: str = ""
    sent: tuple[AlarmKey, ...] = ()
    reason: str = ""
    failed_at: datetime | None = None


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


def without_cleared(record: NoticeRecord, present: Iterable[Alarm]) -> NoticeRecord:
    """Return the record without alarms that have cleared: if they return, they are sent again."""
    keys = set(map(key_of, present))
    return replace(record, sent=tuple(key for key in record.sent if key in keys))


def plan_notices(
    present: Sequence[Alarm], record: NoticeRecord, now: datetime, links: PageLinks = NO_LINKS
) -> tuple[Notice, ...]:
    """Return what to send now, in order: nothing soon after a failure."""
    if record.failed_at is not None and timedelta() <= now - record.failed_at < RETRY_AFTER:
        return ()
    unsent = {key_of(alarm): alarm for alarm in present if key_of(alarm) not in record.sent}
    if len(unsent) > MAX_SINGLE:
        return (build_digest(list(unsent.values()), links),)
    return tuple(build_notice(alarm, links) for alarm in unsent.values())


def record_delivery(record: NoticeRecord, notice: Notice) -> NoticeRecord:
    """Return the record after a notice was delivered."""
    return NoticeRecord(label=record.label, sent=tuple(sorted({*record.sent, *notice.keys})))


def record_failure_of(record: NoticeRecord, reason: str, now: datetime) -> NoticeRecord:
    """Return the record after a failed delivery."""
    return replace(record, reason=clean_text(reason, MAX_ROW), failed_at=now)


def failure_alarm(record: NoticeRecord, now: datetime) -> Alarm | None:
    """Return the alarm of a target that fails; None if its last delivery succeeded or was long ago."""
    if record.failed_at is None or now - record.failed_at >= MAX_FAILURE_AGE:
        return None
    target = '--exec "…"' if record.label == EXEC_LABEL else f"--notify {shlex.quote(record.label)}"
    return AlarmKind.NOTICES_FAILED.alarm(record.label, reason=record.reason, target=target)


def build_notice(alarm: Alarm, links: PageLinks = NO_LINKS) -> Notice:
    """Return the notice of one alarm."""
    row = _noticed(alarm, MAX_TEXT, links)
    return Notice(row.kind, row.about, row.message, row.next, row.link, (row,), (key_of(alarm),))


def build_digest(alarms: Sequence[Alarm], links: PageLinks = NO_LINKS) -> Notice:
    """Return one notice of several alarms. It lists at most MAX_ROWS of them."""
    rows = tuple(_noticed(alarm, MAX_ROW, links) for alarm in alarms[:MAX_ROWS])
    lines = [f"{len(alarms)} alarms wait for you:", *(f"- {row.message}; next: {row.next}" for row in rows)]
    if len(alarms) > MAX_ROWS:
        lines.append(f"- and {len(alarms) - MAX_ROWS} more")
    keys = tuple(map(key_of, alarms))
    return Notice(DIGEST_KIND, "crew", "\n".join(lines), "liza status", links.address_of("crew"), rows, keys)


def _noticed(alarm: Alarm, length: int, links: PageLinks) -> NoticedAlarm:
    about, command = clean_text(alarm.about, MAX_ROW), clean_text(alarm.next, MAX_COMMAND)
    return NoticedAlarm(alarm.kind, about, clean_text(alarm.message, length), command, links.address_of(alarm.about))


def clean_text(text: str, length: int) -> str:
    """Return one line without secrets, control characters and words that call all members of a chat."""
    line = " ".join("".join(char if char.isprintable() else " " for char in redact(text)).split())
    line = _MENTION.sub(lambda match: f"{match.group()}\u200b", line)
    return line if len(line) <= length else f"{line[: length - 1]}…"
