"""The events of histories, and the reports, that the circuit breaker counts. Pure."""

from __future__ import annotations

import zlib
from datetime import datetime, timedelta
from typing import Final

import msgspec

from liza.breaker.rules.text_similarity import normalize_text
from liza.model.history_events import HistoryEvent
from liza.model.merge_failures import find_cleared
from liza.model.model import BreakerSettings, State
from liza.model.value_classes import Value
from liza.text.times import format_time

E = HistoryEvent
REJECTIONS: Final = (E.REJECT, E.DEADLOCK)
FAILURES: Final = (E.BLOCK, E.GIVE_UP_REVIEW, E.MERGE_FAILED)
"""Events whose text tells why something failed.

Ends of sessions, such as crashes, are not among them: limits of the task and of the supervisor stop them, and a killed
machine makes many at once. If they block a task, that block has their reason.
"""
SESSIONS: Final = (E.CLAIM, E.RESUME, E.CLAIM_REVIEW)
MERGES: Final = (E.MERGE, E.LAND)
WATCHED: Final = frozenset((*REJECTIONS, *FAILURES, *SESSIONS, *MERGES))
REPORT = "report "
"""Prefix of the name of a report: ``report trade_off``."""


class WatchedEvent(Value):
    """An event or a report that counts. ``spec`` is the spec of its task, without the part after ``#``."""

    time: datetime
    task: str
    event: str
    text: str = ""
    spec: str = ""

    @property
    def evidence(self) -> str:
        """Time, task and event in one line."""
        return " ".join(filter(None, (format_time(self.time), self.task, self.event)))


def collect_events(state: State, now: datetime) -> tuple[WatchedEvent, ...]:
    """Return the events within ``config.breaker.window`` before ``now``, the oldest first.

    A task whose last event is older costs one comparison.
    """
    start = now - timedelta(seconds=state.config.breaker.window)
    events = []
    for task in state.tasks:
        if not task.history or task.history[-1].time <= start:
            continue
        spec = task.spec_ref.partition("#")[0]
        cleared = find_cleared(task)
        events += [
            WatchedEvent(event.time, task.id, event.event, event.detail or "", spec)
            for event in task.history
            if event.event in WATCHED and start < event.time <= now and event not in cleared
        ]
    events += _collect_reports(state, start, now)
    return tuple(sorted(events, key=lambda event: (event.time, event.task)))


def _collect_reports(state: State, start: datetime, now: datetime) -> list[WatchedEvent]:
    """Return the reports. What one reporter repeats counts once: one agent must not trip the breaker by repetition."""
    recent = [anomaly for anomaly in state.anomalies if start < anomaly.timestamp <= now]
    reports, counted = [], set()
    for anomaly in recent:
        task = state.task(anomaly.task) if anomaly.task else None
        spec = str(anomaly.details.get("spec", "")) or (task.spec_ref if task is not None else "")
        text = str(anomaly.details.get("error_pattern") or anomaly.details.get("text") or "")
        name = REPORT + anomaly.type
        key = (anomaly.reporter, name, anomaly.task, spec, normalize_text(text))
        if key in counted:
            continue
        counted.add(key)
        reports.append(WatchedEvent(anomaly.timestamp, anomaly.task or "", name, text, spec.partition("#")[0]))
    return reports


def fingerprint(events: tuple[WatchedEvent, ...], settings: BreakerSettings) -> str:
    """Return a short text that differs if other events were collected, or other settings are in effect."""
    span = f"{events[0].evidence} {events[-1].evidence}" if events else "none"
    return f"{len(events)} {span} {zlib.crc32(msgspec.json.encode(settings)):08x}"
