"""What the circuit breaker counts, compares and keeps of its trips."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from liza.breaker.rules import text_similarity
from liza.breaker.rules.breaker_patterns import (
    MAX_EVIDENCE,
    BreakerFinding,
    Judged,
    SessionCost,
    evaluate_patterns,
    severity_of,
)
from liza.breaker.rules.breaker_trips import (
    breaker_alarms,
    is_worth_a_check,
    record_findings,
    resolve_trips,
    signal_hint,
    signals_of_trips,
)
from liza.breaker.rules.watched_events import WatchedEvent, collect_events
from liza.model.alarm_kinds import Alarm
from liza.model.errors import Refused, UsageError
from liza.model.model import Anomaly, BreakerSettings, BreakerTrip, CircuitBreaker, Event, Sprint, State, Timeline
from liza.model.statuses import Pattern
from tests.unit.boards import NOW, board, later, task, with_config

OFF = BreakerSettings(
    repeated_error=0, review_loop=0, trade_offs=0, spec_ambiguity=0, integration_failures=0, integration_merges=2,
    sessions_without_merge=0, tests_weakened=0,
)  # fmt: skip
RED = "tests failed on integration: test_invoice.py:{} KeyError 'total'"


def event(name: str, number: int = 0, text: str = "", task_id: str = "t", spec: str = "") -> WatchedEvent:
    return WatchedEvent(time=later(number - 600), task=task_id, event=name, text=text, spec=spec)


def findings(*events: WatchedEvent, **settings: Any) -> tuple[BreakerFinding, ...]:
    return evaluate_patterns(with_config(board(), breaker=replace(OFF, **settings)), events)


SAME = tuple(event("block", number, RED.format(number)) for number in range(3))
ROUNDS = (event("reject", 1, "a"), event("merge failed", 2, "b"), event("deadlock", 3, "no\n tests"))
TRADES = (event("report trade_off", 1, "a"), event("report workaround", 2, "b"), event("report debt_created", 3, "c"))
SPECS = (
    event("block", 1, "the spec is unclear", spec="a.md"),
    event("report spec_gap", 2, "what now?", spec="a.md"),
    event("report spec_ambiguity", 3, "which?", spec="a.md"),
)
MERGES = (event("merge", 1), event("merge failed", 2, "conflict"), event("merge failed", 3, "red"))
STARTS = tuple(event(name, number) for number, name in enumerate(("claim", "resume", "claim review")))


@pytest.mark.parametrize(
    ("events", "settings", "pattern", "subject", "detail", "evidence"),
    [
        (
            SAME, {"repeated_error": 3}, Pattern.REPEATED_ERROR, "",
            "3 similar failures; the last: tests failed on integration: test_invoice.py:2 KeyError 'total'", SAME,
        ),
        (
            (*SAME, event("report retry_loop", 5, "something else altogether happened")), {"repeated_error": 3},
            Pattern.REPEATED_ERROR, "",
            "3 similar failures; the last: tests failed on integration: test_invoice.py:2 KeyError 'total'", SAME,
        ),
        (
            ROUNDS, {"review_loop": 3}, Pattern.REVIEW_LOOP, "t",
            "t had 2 rejections and 1 failed merge; the last: no tests", ROUNDS,
        ),
        (
            TRADES, {"trade_offs": 3}, Pattern.TRADE_OFFS, "",
            "3 reports of trade_off, workaround, debt_created; the last: c", TRADES,
        ),
        (
            (event("report tests_weakened", 1, "x" * 200),), {"tests_weakened": 1}, Pattern.TESTS_WEAKENED, "",
            f"1 report of tests_weakened; the last: {'x' * 159}…", (event("report tests_weakened", 1, "x" * 200),),
        ),
        (
            SPECS, {"spec_ambiguity": 3}, Pattern.SPEC_AMBIGUITY, "a.md",
            "3 questions about a.md; the last: which?", SPECS,
        ),
        (
            MERGES, {"integration_failures": 100}, Pattern.INTEGRATION_FAILURES, "",
            "2 of the last 2 merges failed; the last: red", MERGES[1:],
        ),
        (
            MERGES, {"integration_failures": 66, "integration_merges": 3}, Pattern.INTEGRATION_FAILURES, "",
            "2 of the last 3 merges failed; the last: red", MERGES[1:],
        ),
        (
            STARTS, {"sessions_without_merge": 3}, Pattern.NO_MERGES, "", "3 sessions without a merge", STARTS,
        ),
    ],
)  # fmt: skip
def test_a_finding_tells_the_count_the_last_text_and_its_evidence(
    events: tuple[WatchedEvent, ...], settings: dict[str, int], pattern: Pattern, subject: str, detail: str,
    evidence: tuple[WatchedEvent, ...],
) -> None:  # fmt: skip
    (finding,) = findings(*events, **settings)
    assert finding == BreakerFinding(pattern=pattern, subject=subject, detail=detail, events=evidence)
    name = next(name for name in settings if name != "integration_merges")
    assert findings(*events, **{**settings, name: 101}) == ()
    assert findings(*events, **{**settings, name: 0}) == ()


@pytest.mark.parametrize(
    "events",
    [
        tuple(event("block", number, "stopped") for number in range(9)),
        tuple(event("crash", number, RED) for number in range(9)),
        (event("block", 1, "no database", spec="a.md"), event("report spec_gap", 2, "x"), event("report trade_off", 3)),
    ],
)
def test_short_texts_crashes_and_questions_without_a_spec_are_no_pattern(events: tuple[WatchedEvent, ...]) -> None:
    assert findings(*events, repeated_error=2, spec_ambiguity=1) == ()


def test_only_the_newest_60_failures_are_compared() -> None:
    others = tuple(event("block", 10 + number, chr(97 + number % 26) * (20 + number)) for number in range(60))
    assert findings(*SAME, *others, repeated_error=3) == ()
    assert len(findings(*SAME, *others[:57], repeated_error=3)[0].events) == 3


def test_money_counts_from_the_last_merge_on() -> None:
    costs = [SessionCost(run=f"coder-1.{number}", time=later(-100 + number), cost=2.0) for number in range(3)]
    state = with_config(board(), breaker=replace(OFF, cost_without_merge=6.0))
    (finding,) = evaluate_patterns(state, STARTS, costs)
    assert finding.detail == "3 sessions and $6.00 without a merge"
    assert [one.evidence for one in finding.events[-1:]] == ["2026-01-01T11:58:22Z cost coder-1.2"]
    assert evaluate_patterns(state, (event("merge", 500),), costs) == ()
    assert evaluate_patterns(state, (), [*costs[:2], replace(costs[2], cost=0.0)]) == ()
    assert evaluate_patterns(state, (event("land", 501),), costs) == ()


def test_a_finding_has_its_tasks_sorted_and_its_newest_evidence() -> None:
    many = tuple(event("reject", number, task_id=f"t{number % 3}") for number in range(25))
    finding = BreakerFinding(
        pattern=Pattern.REVIEW_LOOP, subject="", detail="", events=(*many, event("x", 1, task_id=""))
    )
    assert (finding.tasks, finding.last) == (("t0", "t1", "t2"), later(-576))
    assert len(finding.evidence) == MAX_EVIDENCE == 20
    assert finding.evidence[-2:] == ("2026-01-01T11:50:24Z t0 reject", "2026-01-01T11:50:01Z x")


def trip(number: int = 0, **fields: Any) -> BreakerTrip:
    facts = {
        "trigger": "review_loop",
        "severity": "checkpoint",
        "subject": "t",
        "detail": "d",
        "tasks": (),
        "evidence": (),
    }
    return BreakerTrip(**{"time": later(number), **facts, **fields})


def with_trips(*trips: BreakerTrip) -> State:
    return replace(board(), circuit_breaker=CircuitBreaker(history=trips))


@pytest.mark.parametrize(
    ("trips", "fresh"),
    [
        ((), [1, 2]),
        ((trip(),), []),
        ((trip(subject="u"),), [1, 2]),
        ((trip(trigger="no_merges"),), [1, 2]),
        ((trip(-700, resolved=later(-599)),), [2]),
        ((trip(-599, resolved=later(-700)),), [2]),
        ((trip(-700, resolved=later(-598)),), []),
        ((trip(-700, resolved=later(-598)), trip(-700, resolved=later(-650))), []),
        ((trip(-700, resolved=later(-650)), trip(-690)), []),
        ((trip(-700), trip(-690, resolved=later(-650))), []),
    ],
)
def test_events_that_a_trip_has_judged_do_not_count_again(trips: tuple[BreakerTrip, ...], fresh: list[int]) -> None:
    events = [event("reject", 1), event("reject", 2)]
    left = Judged(with_trips(*trips)).fresh(Pattern.REVIEW_LOOP, "t", events)
    assert left == [event("reject", number) for number in fresh]


def test_a_recorded_trip_has_all_that_a_person_needs_and_is_no_older_than_its_evidence() -> None:
    (finding,) = findings(*ROUNDS, review_loop=3)
    state = record_findings(board(), [finding], NOW)
    expected = BreakerTrip(
        time=NOW, trigger="review_loop", severity="checkpoint", subject="t", detail=finding.detail, tasks=("t",),
        evidence=finding.evidence,
    )  # fmt: skip
    assert (state.circuit_breaker.status, state.circuit_breaker.history) == ("TRIGGERED", (expected,))
    back = record_findings(board(), [finding], NOW - timedelta(days=1))
    assert back.circuit_breaker.history[0].time == finding.last
    assert severity_of(BreakerSettings(severity={"review_loop": "warn"}), Pattern.REVIEW_LOOP) == "warn"


def test_trips_are_resolved_with_their_cause_and_the_others_stay_as_they_are() -> None:
    old = trip(-9, resolved=later(-5), resolved_by="human:bob", root_cause="x")
    state = with_trips(old, trip(), trip(3))
    after = resolve_trips(state, "human:ann", " the spec ", later(2)).circuit_breaker
    cause = {"resolved_by": "human:ann", "root_cause": "the spec"}
    assert after.history == (old, trip(resolved=later(2), **cause), trip(3, resolved=later(3), **cause))
    for broken, by, text, message, hint in (
        (state, "human:ann", " ", "a trip is resolved with its root cause", 'liza breaker resolve "…"'),
        (with_trips(old), "human:ann", "x", "no trip of the circuit breaker is open", "liza breaker"),
        (
            with_trips(trip(severity="halt"), trip(trigger="no_merges", severity="halt")), "planner-1", "x",
            "only a person resolves a halt (review_loop, no_merges)", "liza breaker",
        ),
    ):  # fmt: skip
        with pytest.raises((UsageError, Refused)) as refusal:
            resolve_trips(broken, by, text, NOW)
        assert (str(refusal.value), refusal.value.hint) == (message, hint)


def test_an_open_trip_sets_the_signal_of_the_oldest_one_and_is_an_alarm() -> None:
    state = with_trips(trip(), trip(1, detail="second"), trip(2, severity="halt", trigger="no_merges", subject=""))
    assert signals_of_trips(state) == {"CHECKPOINT": trip(), "PAUSE": state.circuit_breaker.history[2]}
    command, resolve = 'liza resume "…"', 'liza breaker resolve "…"'
    assert signal_hint(state) == command
    assert list(breaker_alarms(state))[2] == Alarm(
        "breaker_tripped", "no_merges", "circuit breaker, no_merges: d", command, later(2)
    )
    (warning,) = breaker_alarms(with_trips(trip(severity="warn")))
    assert warning == Alarm("breaker_warning", "review_loop t", "circuit breaker, review_loop: d", resolve, NOW)
    assert signal_hint(with_trips(trip(severity="warn"))) == "liza resume"


@pytest.mark.parametrize(
    ("state", "worth"),
    [
        (board(), False),
        (board(anomalies=(Anomaly(timestamp=NOW, type="workaround"),)), True),
        (with_trips(trip(resolved=NOW)), True),
        (with_config(board(), breaker=BreakerSettings(cost_without_merge=1.0)), True),
        (with_config(board(task()), breaker=BreakerSettings(sessions_without_merge=2)), True),
        (with_config(board(task()), breaker=BreakerSettings(sessions_without_merge=3)), False),
        (with_config(board(task()), breaker=BreakerSettings(sessions_without_merge=0)), False),
        (board(task(review_cycles_total=1)), True),
        (board(task(integration_fix=True)), True),
        (board(task(blocked_reason="x")), True),
        (board(task(iteration=2)), True),
        (board(task(iteration=1)), False),
    ],
)
def test_a_crew_is_checked_only_if_something_can_reach_a_threshold(state: State, worth: bool) -> None:
    assert is_worth_a_check(state) is worth


def test_events_are_collected_within_the_window_with_their_spec() -> None:
    history = (
        Event(time=later(-100), event="reject", detail="old"),
        Event(time=later(-99), event="reject", detail="a"),
        Event(time=later(-50), event="submit", detail="b"),
        Event(time=NOW, event="merge"),
        Event(time=later(1), event="reject", detail="future"),
    )
    reports = (
        Anomaly(timestamp=later(-60), task="t", type="spec_gap", details={"error_pattern": "p", "text": "q"}),
        Anomaly(timestamp=later(-55), type="spec_gap", details={"spec": "b.md#x", "text": "q"}),
        Anomaly(timestamp=later(-100), type="spec_gap"),
        Anomaly(timestamp=later(1), type="spec_gap"),
    )
    state = with_config(
        board(task("t", history=history, spec_ref="a.md#1"), task("u", history=history[:1]), anomalies=reports),
        breaker=BreakerSettings(window=100),
    )
    assert collect_events(state, NOW) == (
        WatchedEvent(time=later(-99), task="t", event="reject", text="a", spec="a.md"),
        WatchedEvent(time=later(-60), task="t", event="report spec_gap", text="p", spec="a.md"),
        WatchedEvent(time=later(-55), task="", event="report spec_gap", text="q", spec="b.md"),
        WatchedEvent(time=NOW, task="t", event="merge", text="", spec="a.md"),
    )


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("Line 12 at 0x7FFE12", "line # at #"),
        ("commit 1234567 abcdefa beef123", "commit # abcdefa #"),
        ("took 3.25 s\n\n  twice", "took #.# s twice"),
        ("x" * 900, "x" * 200),
    ],
)
def test_numbers_and_hashes_make_no_difference(text: str, normal: str) -> None:
    assert text_similarity.normalize_text(text) == normal


def test_similar_texts_reach_the_similarity_and_the_largest_group_counts() -> None:
    assert text_similarity.are_similar([], 90)
    assert text_similarity.are_similar(["one"], 90)
    assert text_similarity.are_similar(["the tests fail", "the tests failed"], 90)
    assert not text_similarity.are_similar(["the tests fail", "the disk is full", "the disk is full"], 90)
    assert not text_similarity.are_similar(["abc", "xyz"], 0)
    texts = ["the tests fail", "disk full", "the tests failed", "the tests fails", "disk full"]
    assert text_similarity.find_largest_group(texts, 90) == (0, 2, 3)
    assert text_similarity.find_largest_group([], 90) == ()


def test_a_text_of_twelve_characters_tells_one_error_from_another() -> None:
    failures = [event("block", number, "x" * 12) for number in range(2)]
    assert len(findings(*failures, repeated_error=2)) == 1
    assert findings(*(replace(one, text="x" * 11) for one in failures), repeated_error=2) == ()
    last = event("block", 5, "tests failed on integration: test_invoice.py:1 KeyError 'tax'")
    assert findings(*SAME, last, repeated_error=4)[0].detail.endswith("KeyError 'tax'")


def sprint(**times: Any) -> Sprint:
    return Sprint(id="s-1", status="IN_PROGRESS", timeline=Timeline(**times))
