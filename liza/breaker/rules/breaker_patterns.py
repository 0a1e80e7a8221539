"""Patterns of failure over many events. Pure.

Each pattern is a function that gets the events that no trip has judged yet, and yields findings with their evidence. A
finding has at least as many events as the threshold of its pattern in ``config.breaker``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

from liza.breaker.rules.text_similarity import find_largest_group
from liza.breaker.rules.watched_events import FAILURES, MERGES, REJECTIONS, REPORT, SESSIONS, WatchedEvent
from liza.model.history_events import HistoryEvent
from liza.model.merge_failures import is_conflict
from liza.model.model import BreakerSettings, State
from liza.model.statuses import Pattern
from liza.model.value_classes import Value
from liza.text.counts import count_noun

E = HistoryEvent
MAX_TEXTS = 60
"""Number of the newest failure texts that are compared with each other."""
MIN_TEXT = 12
"""Number of characters below which a text, such as `stopped`, does not tell one error from another."""
MAX_EVIDENCE = 20
MAX_QUOTED = 160
_ABOUT_SPEC = re.compile(r"(?i)\b(?:specs?|specification|ambigu\w*|unclear|contradict\w*)\b")


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
