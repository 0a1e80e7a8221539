"""The circuit breaker: which events trip it, what a trip has, and that resolved evidence never trips it again."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liza.alarms.rules.alarm_checks import AlarmFacts, evaluate_alarms
from liza.breaker.rules.breaker_patterns import (
    REPORT,
    WATCHED,
    BreakerFinding,
    SessionCost,
    collect_events,
    evaluate_patterns,
    find_repeated_rejections,
    fingerprint,
)
from liza.breaker.rules.breaker_trips import (
    RESUME_COMMAND,
    is_worth_a_check,
    open_trips,
    record_findings,
    resolve_trips,
    signal_hint,
    signals_of_trips,
)
from liza.model import invariants
from liza.model.configuration import BreakerSettings
from liza.model.errors import Refused, UsageError
from liza.model.history_events import HistoryEvent, describe_conflict
from liza.model.model import Anomaly, Event, State, Task
from liza.model.statuses import Pattern, missing_details
from liza.model.value_classes import replace
from tests.unit.boards import NOW, board, later, task, with_config

E = HistoryEvent
LOW = BreakerSettings(
    repeated_error=3,
    review_loop=3,
    trade_offs=2,
    spec_ambiguity=2,
    integration_failures=50,
    integration_merges=2,
    sessions_without_merge=4,
    tests_weakened=1,
)
RED = "tests failed on integration: test_invoice.py:{} KeyError 'total'"
CONFLICT = describe_conflict("integration", ["mail.py"], "<<<<<<<")


def events(*names: str, start: float = -600, detail: str = "") -> tuple[Event, ...]:
    return tuple(
        Event(time=later(start + 10 * number), event=name, detail=detail.format(number) or None)
        for number, name in enumerate(names)
    )


def with_history(task_id: str, *names: str, detail: str = "", **fields: Any) -> Task:
    return task(task_id, history=events(*names, detail=detail), **fields)


def low(*tasks: Task, reports: tuple[Anomaly, ...] = (), **changes: Any) -> State:
    return with_config(board(*tasks, anomalies=reports), breaker=replace(LOW, **changes))


def report(kind: str, task_id: str | None = None, at: float = -60, run: str = "coder-1.1", **details: str) -> Anomaly:
    bare = Anomaly(timestamp=later(at), task=task_id, reporter=run, type=kind, details=details)
    return replace(bare, details={**dict.fromkeys(missing_details(bare), "x"), **details})


def evaluate(state: State, now: datetime = NOW, costs: tuple[SessionCost, ...] = ()) -> tuple[BreakerFinding, ...]:
    return evaluate_patterns(state, collect_events(state, now), costs)


CASES: dict[str, tuple[State, list[tuple[str, str]]]] = {
    "nothing": (low(task()), []),
    "the same error in three tasks": (
        low(*(with_history(name, E.BLOCK, detail=RED.format(name)) for name in ("task-1", "task-2", "task-3"))),
        [(Pattern.REPEATED_ERROR, "")],
    ),
    "the same error in three tries of one task": (
        low(with_history("task-1", *[E.MERGE_FAILED] * 3, detail=RED), review_loop=0, integration_merges=9),
        [(Pattern.REPEATED_ERROR, "")],
    ),
    "three errors of different kinds": (
        low(
            with_history("task-1", E.BLOCK, detail="the database of the shop does not accept connections"),
            with_history("task-2", E.BLOCK, detail="which rounding does the invoice use, half even or half up?"),
            with_history("task-3", E.BLOCK, detail="5 sessions crashed; the last: out of memory"),
        ),
        [],
    ),
    "texts that are too short to differ": (low(with_history("task-1", *[E.BLOCK] * 5, detail="stopped")), []),
    "crashes, which have limits of their own": (low(with_history("task-1", *[E.CRASH] * 9, detail=RED)), []),
    "a review loop": (
        low(with_history("task-1", E.REJECT, E.REJECT, E.DEADLOCK, detail="no test")),
        [(Pattern.REVIEW_LOOP, "task-1")],
    ),
    "approved and not merged again and again": (
        low(with_history("task-1", E.REJECT, E.MERGE_FAILED, E.REJECT, detail="x"), integration_failures=0),
        [(Pattern.REVIEW_LOOP, "task-1")],
    ),
    "rejections of different tasks": (low(*(with_history(f"task-{n}", E.REJECT) for n in range(1, 5))), []),
    "trade-offs": (low(task(), reports=(report("trade_off"), report("workaround"))), [(Pattern.TRADE_OFFS, "")]),
    "questions about one spec": (
        low(
            with_history("task-1", E.BLOCK, detail="the spec names two formats", spec_ref="a.md#one"),
            task("task-2", spec_ref="a.md#two"),
            reports=(report("spec_gap", "task-2"),),
        ),
        [(Pattern.SPEC_AMBIGUITY, "a.md")],
    ),
    "questions about two specs": (
        low(task("task-1", spec_ref="a.md"), reports=(report("spec_gap", "task-1"), report("spec_gap", spec="b.md"))),
        [],
    ),
    "half of the merges failed": (
        low(with_history("task-1", E.MERGE), with_history("task-2", E.MERGE_FAILED, detail="red")),
        [(Pattern.INTEGRATION_FAILURES, "")],
    ),
    "too few merges": (low(with_history("task-2", E.MERGE_FAILED, detail="red")), []),
    "conflicts between tasks": (
        low(
            with_history("task-1", E.MERGE),
            *(with_history(f"task-{n}", E.MERGE_FAILED, detail=CONFLICT) for n in "234"),
            repeated_error=0,
        ),
        [],
    ),
    "sessions without a merge": (
        low(with_history("task-1", E.CLAIM, E.RESUME, E.RESUME, E.CLAIM_REVIEW)),
        [(Pattern.NO_MERGES, "")],
    ),
    "sessions and then a merge": (
        low(with_history("task-1", E.CLAIM, E.RESUME, E.RESUME, E.CLAIM_REVIEW, E.MERGE)),
        [],
    ),
    "one run that repeats itself": (
        low(task(), reports=tuple(report("workaround", text=f"rounded by  HAND, line {n}") for n in range(5))),
        [],
    ),
    "one question of two runs": (
        low(
            task("task-1"),
            reports=tuple(report("spec_gap", "task-1", run=f"coder-{n}.1", text="a or b?") for n in "12"),
        ),
        [(Pattern.SPEC_AMBIGUITY, "spec.md")],
    ),
    "weakened tests": (low(task(), reports=(report("tests_weakened", text="skip"),)), [(Pattern.TESTS_WEAKENED, "")]),
    "all turned off": (
        low(
            with_history("task-1", *[E.REJECT, E.CLAIM, E.BLOCK, E.MERGE_FAILED] * 5, detail=RED),
            reports=(report("trade_off"), report("tests_weakened"), report("spec_gap", "task-1")) * 3,
            repeated_error=0,
            review_loop=0,
            trade_offs=0,
            spec_ambiguity=0,
            integration_failures=0,
            sessions_without_merge=0,
            tests_weakened=0,
        ),
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_pattern_trips_at_its_threshold_and_not_below(name: str) -> None:
    state, expected = CASES[name]
    found = evaluate(state)
    assert [(one.pattern, one.subject) for one in found] == expected
    assert all(one.events and one.evidence and one.detail for one in found)


def test_old_events_and_those_of_the_future_do_not_count() -> None:
    state = low(with_history("task-1", E.REJECT, E.REJECT, E.REJECT))
    assert len(evaluate(state)) == 1
    assert evaluate(state, NOW + timedelta(days=1)) == ()
    assert evaluate(state, NOW - timedelta(days=1)) == ()


def test_the_defaults_do_not_trip_a_crew_with_some_failures() -> None:
    rounds = (E.CLAIM, E.SUBMIT, E.CLAIM_REVIEW, E.REJECT, E.RESUME, E.SUBMIT, E.APPROVE, E.MERGE_FAILED, E.RESUME)
    tasks = [with_history(f"task-{n}", *rounds, E.SUBMIT, E.APPROVE, E.MERGE, detail=f"reason {n}") for n in range(20)]
    assert evaluate(board(*tasks, anomalies=(report("trade_off"), report("spec_gap", "task-1")))) == ()


def tripped(severity: str = "checkpoint") -> State:
    state = low(with_history("task-1", E.REJECT, E.REJECT, E.REJECT), severity={"review_loop": severity})
    return record_findings(state, evaluate(state), NOW)


def test_a_trip_is_recorded_once_with_its_evidence() -> None:
    state = tripped()
    (trip,) = state.circuit_breaker.history
    assert (state.circuit_breaker.status, trip.trigger) == ("TRIGGERED", "review_loop")
    assert (trip.time, trip.severity, trip.subject, trip.tasks) == (NOW, "checkpoint", "task-1", ("task-1",))
    assert trip.evidence[0] == "2026-01-01T11:50:00Z task-1 reject"
    assert invariants.check_board(state) == ()
    assert invariants.check_entry("circuit_breaker", "circuit_breaker", state.circuit_breaker, state) == ()
    assert evaluate(state) == ()
    before = low(with_history("task-1", E.REJECT, E.REJECT, E.REJECT))
    assert record_findings(state, evaluate(before), NOW) is state


def breaker_kinds(state: State) -> list[str]:
    alarms = evaluate_alarms(state, NOW, AlarmFacts())
    return [alarm.kind for alarm in alarms if alarm.kind.startswith("breaker_")]


@pytest.mark.parametrize(
    ("severity", "signal", "alarm"),
    [
        ("warn", None, "breaker_warning"),
        ("checkpoint", "CHECKPOINT", "breaker_tripped"),
        ("halt", "PAUSE", "breaker_tripped"),
    ],
)
def test_the_severity_decides_the_signal_the_alarm_and_who_resolves(
    severity: str, signal: str | None, alarm: str
) -> None:
    state = tripped(severity)
    assert list(signals_of_trips(state)) == ([signal] if signal else [])
    assert breaker_kinds(state) == [alarm]
    assert (signal_hint(state) == RESUME_COMMAND) == (signal is not None)
    if severity == "halt":
        with pytest.raises(Refused, match="only a person"):
            resolve_trips(state, "planner-1", "cause", later(1))
    else:
        assert open_trips(resolve_trips(state, "planner-1", "cause", later(1))) == ()
    resolved = resolve_trips(state, "human:ann", " the spec was wrong\n", later(1))
    (trip,) = resolved.circuit_breaker.history
    assert (trip.resolved, trip.resolved_by, trip.root_cause) == (later(1), "human:ann", "the spec was wrong")
    assert resolved.circuit_breaker.status == "OK"
    assert breaker_kinds(resolved) == []
    assert signal_hint(resolved) == "liza resume"


def test_nothing_is_resolved_without_a_cause_or_a_trip() -> None:
    for text in ("  ", "…"):
        with pytest.raises(UsageError):
            resolve_trips(tripped(), "human:ann", text, NOW)
    with pytest.raises(Refused, match="no trip"):
        resolve_trips(low(), "human:ann", "cause", NOW)


def test_after_a_resolution_only_new_events_trip_again() -> None:
    state = resolve_trips(tripped(), "human:ann", "cause", later(5))
    again = replace(state.tasks[0], history=state.tasks[0].history + events(E.REJECT, E.REJECT, start=10))
    assert evaluate(state.with_task(again), later(100)) == ()
    third = replace(again, history=again.history + events(E.REJECT, start=50))
    (found,) = evaluate(state.with_task(third), later(100))
    assert len(found.events) == 3


NAMES = sorted(WATCHED)
KINDS = ("trade_off", "spec_gap", "tests_weakened", "retry_loop", "workaround")
MOMENTS = st.integers(-30_000, 600)
HISTORY = st.lists(st.tuples(MOMENTS, st.sampled_from(NAMES), st.sampled_from([RED, "x", "unclear spec: a or b?"])))
REPORTS = st.lists(st.tuples(MOMENTS, st.sampled_from(KINDS)), max_size=6)


@settings(max_examples=60, deadline=None)
@given(st.lists(HISTORY, max_size=4), REPORTS, st.integers(-300, 300))
def test_no_trip_lacks_evidence_or_repeats_once_resolved(
    histories: list[list[tuple[int, str, str]]], reported: list[tuple[int, str]], step: int
) -> None:
    tasks = [
        task(f"task-{n}", history=tuple(Event(time=later(t), event=e, detail=text) for t, e, text in sorted(rows)))
        for n, rows in enumerate(histories)
    ]
    state = low(*tasks, reports=tuple(report(kind, "task-0", at) for at, kind in reported))
    collected = collect_events(state, NOW)
    assert all(event.event in WATCHED or event.event.startswith(REPORT) for event in collected)
    found = evaluate(state)
    for one in found:
        assert one.events
        assert set(one.events) <= set(collected)
        assert one.tasks or one.pattern in (Pattern.TRADE_OFFS, Pattern.TESTS_WEAKENED, Pattern.REPEATED_ERROR)
    state = record_findings(state, found, NOW)
    assert len(open_trips(state)) == len(found)
    assert invariants.check_board(state) == ()
    assert evaluate(state) == ()
    if found:
        assert is_worth_a_check(state)
        # Also if the clock was set back between the trip and its resolution.
        state = resolve_trips(state, "human:ann", "cause", later(step))
        assert evaluate(state) == ()


def test_the_fingerprint_changes_with_the_events_and_the_settings() -> None:
    one, two = low(with_history("task-1", E.REJECT)), low(with_history("task-1", E.REJECT, E.REJECT))
    made = [fingerprint(collect_events(state, NOW), LOW) for state in (one, two, low())]
    assert len({*made, fingerprint(collect_events(one, NOW), BreakerSettings())}) == 4


@pytest.mark.parametrize(
    ("history", "count"),
    [
        (events(E.REJECT, E.REJECT, detail="no test for the empty cart, line {}"), 0),
        (events(E.REJECT, E.REJECT, E.REJECT, detail="no test for the empty cart, line {}"), 3),
        (events(E.REJECT, E.REJECT, E.UNBLOCK, E.REJECT, detail="no test for the empty cart"), 0),
        (events(E.REJECT, E.REJECT, detail="no test") + events(E.REJECT, detail="the API key is in the log"), 0),
    ],
)
def test_three_similar_rejections_demand_a_root_cause(history: tuple[Event, ...], count: int) -> None:
    assert len(find_repeated_rejections(task(history=history), 85)) == count
