"""Patterns of failure over many events, and the events that are watched. Pure.

Each pattern is a function that gets the events that no trip has judged yet, and yields findings with their evidence. A
finding has at least as many events as the threshold of its pattern in ``config.breaker``.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Final

import msgspec

from liza.model.configuration import BreakerSettings
from liza.model.history_events import HistoryEvent, find_cleared, is_conflict
from liza.model.model import State, Task
from liza.model.statuses import Pattern
from liza.model.value_classes import Value
from liza.text.formats import count_noun, format_time

E = HistoryEvent
MAX_TEXTS = 60
"""Number of the newest failure texts that are compared with each other."""
MIN_TEXT = 12
"""Number of characters below which a text, such as `stopped`, does not tell one error from another."""
MAX_EVIDENCE = 20
MAX_QUOTED = 160
_ABOUT_SPEC = re.compile(r"(?i)\b(?:specs?|specification|ambigu\w*|unclear|contradict\w*)\b")


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


SEVERITY_OF_PATTERN: Final = {
    Pattern.REPEATED_ERROR: "checkpoint",
    Pattern.REVIEW_LOOP: "checkpoint",
    Pattern.TRADE_OFFS: "warn",
    Pattern.SPEC_AMBIGUITY: "checkpoint",
    Pattern.INTEGRATION_FAILURES: "halt",
    Pattern.NO_MERGES: "halt",
    Pattern.TESTS_WEAKENED: "warn",
}
"""Severity of each pattern, unless ``config.breaker.severity`` has another one."""


class SessionCost(Value):
    """Cost of a session in US dollars, and when it was recorded."""

    run: str
    time: datetime
    cost: float


class BreakerFinding(Value):
    """A pattern that reached its threshold. ``subject``: the task or the spec; empty: the crew.

    ``events`` are the evidence, the oldest first; never empty. ``last`` is the time of the newest.
    """

    pattern: Pattern
    subject: str
    detail: str
    events: tuple[WatchedEvent, ...]

    @property
    def last(self) -> datetime:
        return max(event.time for event in self.events)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks of the evidence, sorted."""
        return tuple(sorted({event.task for event in self.events if event.task}))

    @property
    def evidence(self) -> tuple[str, ...]:
        """The newest events as lines, at most MAX_EVIDENCE."""
        return tuple(event.evidence for event in self.events[-MAX_EVIDENCE:])


Events = Sequence[WatchedEvent]


class Judged:
    """Which events were judged already: a trip judges the older ones of its pattern and subject when it is resolved."""

    def __init__(self, state: State) -> None:
        self._until: dict[tuple[str, str], datetime | None] = {}
        for trip in state.circuit_breaker.history:
            key = (trip.trigger, trip.subject)
            until = None if trip.resolved is None else max(trip.time, trip.resolved)
            earlier = self._until.get(key, until)
            self._until[key] = None if until is None or earlier is None else max(until, earlier)

    def fresh(self, pattern: Pattern, subject: str, events: Iterable[WatchedEvent]) -> list[WatchedEvent]:
        """Return the events after the last resolved trip of this pattern and subject; empty while one is open."""
        key = (pattern.value, subject)
        if key not in self._until:
            return list(events)
        until = self._until[key]
        return [] if until is None else [event for event in events if event.time > until]


def evaluate_patterns(state: State, events: Events, costs: Sequence[SessionCost] = ()) -> tuple[BreakerFinding, ...]:
    """Return all findings. ``events`` as ``collect_events`` returns them; ``costs`` within the same window."""
    settings, judged = state.config.breaker, Judged(state)
    findings = [finding for pattern in _PATTERNS for finding in pattern(settings, judged, events)]
    return (*findings, *_no_merges(settings, judged, events, costs))


def severity_of(settings: BreakerSettings, pattern: Pattern) -> str:
    """Return the severity of a trip of this pattern: warn, checkpoint or halt."""
    return settings.severity.get(pattern.value, SEVERITY_OF_PATTERN[pattern])


def _repeated_error(settings: BreakerSettings, judged: Judged, events: Events) -> Iterator[BreakerFinding]:
    wanted = (*FAILURES, REPORT + "retry_loop", REPORT + "external_blocker")
    texts = [event for event in events if event.event in wanted and len(event.text.strip()) >= MIN_TEXT]
    texts = judged.fresh(Pattern.REPEATED_ERROR, "", texts)[-MAX_TEXTS:]
    if not _reaches(len(texts), settings.repeated_error):
        return
    group = tuple(texts[index] for index in find_largest_group([event.text for event in texts], settings.similarity))
    if _reaches(len(group), settings.repeated_error):
        detail = f"{count_noun(len(group), 'similar failure')}; the last: {_quote(group[-1].text)}"
        yield BreakerFinding(Pattern.REPEATED_ERROR, "", detail, group)


def _review_loop(settings: BreakerSettings, judged: Judged, events: Events) -> Iterator[BreakerFinding]:
    rounds = [event for event in events if event.event in (*REJECTIONS, E.MERGE_FAILED)]
    for task, own in _group(rounds, lambda event: event.task).items():
        fresh = judged.fresh(Pattern.REVIEW_LOOP, task, own)
        if _reaches(len(fresh), settings.review_loop):
            rejected = sum(event.event in REJECTIONS for event in fresh)
            counted = f"{count_noun(rejected, 'rejection')} and {count_noun(len(fresh) - rejected, 'failed merge')}"
            detail = f"{task} had {counted}; the last: {_quote(fresh[-1].text)}"
            yield BreakerFinding(Pattern.REVIEW_LOOP, task, detail, tuple(fresh))


def _trade_offs(settings: BreakerSettings, judged: Judged, events: Events) -> Iterator[BreakerFinding]:
    kinds = ("trade_off", "workaround", "debt_created")
    yield from _reports(Pattern.TRADE_OFFS, kinds, settings.trade_offs, judged, events)


def _tests_weakened(settings: BreakerSettings, judged: Judged, events: Events) -> Iterator[BreakerFinding]:
    yield from _reports(Pattern.TESTS_WEAKENED, ("tests_weakened",), settings.tests_weakened, judged, events)


def _reports(
    pattern: Pattern, kinds: tuple[str, ...], threshold: int, judged: Judged, events: Events
) -> Iterator[BreakerFinding]:
    names = {REPORT + kind for kind in kinds}
    fresh = judged.fresh(pattern, "", (event for event in events if event.event in names))
    if _reaches(len(fresh), threshold):
        detail = f"{count_noun(len(fresh), 'report')} of {', '.join(kinds)}; the last: {_quote(fresh[-1].text)}"
        yield BreakerFinding(pattern, "", detail, tuple(fresh))


def _spec_ambiguity(settings: BreakerSettings, judged: Judged, events: Events) -> Iterator[BreakerFinding]:
    reports = (REPORT + "spec_ambiguity", REPORT + "spec_gap")
    about = [
        event
        for event in events
        if event.spec and (event.event in reports or (event.event == E.BLOCK and _ABOUT_SPEC.search(event.text)))
    ]
    for spec, own in _group(about, lambda event: event.spec).items():
        fresh = judged.fresh(Pattern.SPEC_AMBIGUITY, spec, own)
        if _reaches(len(fresh), settings.spec_ambiguity):
            detail = f"{count_noun(len(fresh), 'question')} about {spec}; the last: {_quote(fresh[-1].text)}"
            yield BreakerFinding(Pattern.SPEC_AMBIGUITY, spec, detail, tuple(fresh))


def _integration_failures(settings: BreakerSettings, judged: Judged, events: Events) -> Iterator[BreakerFinding]:
    merges = (
        event
        for event in events
        if event.event == E.MERGE or (event.event == E.MERGE_FAILED and not is_conflict(event.text))
    )
    tries = judged.fresh(Pattern.INTEGRATION_FAILURES, "", merges)
    tries = tries[-max(settings.integration_merges, 1) :]
    failed = tuple(event for event in tries if event.event == E.MERGE_FAILED)
    enough = len(tries) >= max(settings.integration_merges, 1)
    if failed and enough and _reaches(100 * len(failed) // len(tries), settings.integration_failures):
        detail = f"{len(failed)} of the last {len(tries)} merges failed; the last: {_quote(failed[-1].text)}"
        yield BreakerFinding(Pattern.INTEGRATION_FAILURES, "", detail, failed)


def _no_merges(
    settings: BreakerSettings, judged: Judged, events: Events, costs: Sequence[SessionCost]
) -> Iterator[BreakerFinding]:
    merged = max((event.time for event in events if event.event in MERGES), default=None)
    used = [WatchedEvent(cost.time, "", f"cost {cost.run}", f"{cost.cost}") for cost in costs if cost.cost > 0]
    since = judged.fresh(Pattern.NO_MERGES, "", [*(event for event in events if event.event in SESSIONS), *used])
    since = sorted((event for event in since if merged is None or event.time > merged), key=lambda event: event.time)
    sessions = [event for event in since if event.event in SESSIONS]
    spent = sum(float(event.text) for event in since if event.event not in SESSIONS)
    is_costly = settings.cost_without_merge > 0 and spent >= settings.cost_without_merge
    if is_costly or _reaches(len(sessions), settings.sessions_without_merge):
        cost = f" and ${spent:.2f}" if spent else ""
        detail = f"{count_noun(len(sessions), 'session')}{cost} without a merge"
        yield BreakerFinding(Pattern.NO_MERGES, "", detail, tuple(since))


_PATTERNS: Final[tuple[Callable[[BreakerSettings, Judged, Events], Iterator[BreakerFinding]], ...]] = (
    _repeated_error,
    _review_loop,
    _trade_offs,
    _tests_weakened,
    _spec_ambiguity,
    _integration_failures,
)


def _reaches(count: int, threshold: int) -> bool:
    """Return whether ``count`` reaches the threshold. 0 turns the pattern off."""
    return 0 < threshold <= count


def _group(events: Events, key: Callable[[WatchedEvent], str]) -> dict[str, list[WatchedEvent]]:
    groups: dict[str, list[WatchedEvent]] = defaultdict(list)
    for event in events:
        groups[key(event)].append(event)
    return groups


def _quote(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_QUOTED else line[: MAX_QUOTED - 1] + "…"


MAX_COMPARED = 200
"""Number of characters of a text that are compared. A failure tells its kind at its start, and the time of a comparison
is quadratic: 0.7 ms for two texts of this length, 4 ms for the worst ones."""
_NUMBER = re.compile(r"\b0x[0-9a-f]+\b|\b(?=[0-9a-f]*\d)[0-9a-f]{7,64}\b|\d+")


def normalize_text(text: str) -> str:
    """Return the text in lower case and one line, at most MAX_COMPARED characters, with ``#`` for numbers and hashes.

    Line numbers, durations and commits differ from one try to the next.
    """
    return _NUMBER.sub("#", " ".join(text[: 4 * MAX_COMPARED].lower().split()))[:MAX_COMPARED]


def are_similar(texts: Sequence[str], similarity: int) -> bool:
    """Return whether all texts are similar to the last one; True for less than two. ``similarity``: 0 to 100."""
    keys = [normalize_text(text) for text in texts]
    return all(_score(key, keys[-1], similarity) for key in keys[:-1])


def find_largest_group(texts: Sequence[str], similarity: int) -> tuple[int, ...]:
    """Return the indices of the most texts that are similar to one of them; empty without texts.

    The time is quadratic in the number of different texts.
    """
    keys = [normalize_text(text) for text in texts]
    best: frozenset[str] = frozenset()
    counts = Counter(keys)
    for key in counts:
        group = frozenset(other for other in counts if _score(key, other, similarity))
        if sum(counts[name] for name in group) > sum(counts[name] for name in best):
            best = group
    return tuple(index for index, key in enumerate(keys) if key in best)


@lru_cache(maxsize=4096)  # A breaker compares the same texts again after each failure.
def _score(first: str, second: str, similarity: int) -> bool:
    if first == second:
        return True
    limit = max(similarity, 1) / 100
    matcher = SequenceMatcher(None, first, second, autojunk=False)
    return matcher.real_quick_ratio() >= limit and matcher.quick_ratio() >= limit and matcher.ratio() >= limit


SAME_REJECTIONS: Final = 3
"""Number of similar rejections in a row after which a coder states the root cause before it changes code."""


def find_repeated_rejections(task: Task, similarity: int) -> tuple[str, ...]:
    """Return the reasons of the last SAME_REJECTIONS rejections if they are similar; otherwise empty.

    An unblocked task begins to count again. ``similarity`` is ``config.breaker.similarity``.
    """
    reasons: list[str] = []
    for event in reversed(task.history):
        if event.event == HistoryEvent.UNBLOCK or len(reasons) == SAME_REJECTIONS:
            break
        if event.event in REJECTIONS:
            reasons.append(event.detail or "")
    if len(reasons) < SAME_REJECTIONS:
        return ()
    return tuple(reversed(reasons)) if are_similar(reasons[::-1], similarity) else ()
