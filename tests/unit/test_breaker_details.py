"""What a trip of the circuit breaker tells a person, the bounds of comments, and the texts of a sprint."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from liza.rules.alarm_kinds import Alarm
from liza.rules.errors import Refused, UsageError
from liza.rules.governance import board_reports, line_comments, retrospective, sprint_alarms, text_similarity
from liza.rules.governance.anomaly_kinds import check_anomaly, missing_details
from liza.rules.governance.breaker_patterns import (
    MAX_EVIDENCE,
    BreakerFinding,
    Judged,
    SessionCost,
    evaluate_patterns,
    severity_of,
)
from liza.rules.governance.breaker_trips import record_findings, resolve_trips
from liza.rules.governance.open_trips import breaker_alarms, is_worth_a_check, signal_hint, signals_of_trips
from liza.rules.governance.watched_events import WatchedEvent, collect_events, fingerprint
from liza.rules.model import (
    Anomaly,
    ArchiveSummary,
    BreakerSettings,
    BreakerTrip,
    CircuitBreaker,
    Discovery,
    Event,
    LineComment,
    Resolution,
    Sprint,
    State,
    Status,
    Task,
    Timeline,
)
from liza.rules.statuses import Pattern
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
        (state, "human:ann", " ", "a trip is resolved with its root cause", 'liza breaker resolve "ROOT CAUSE"'),
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
    command = 'liza breaker resolve "ROOT CAUSE"'
    assert signal_hint(state) == command
    assert list(breaker_alarms(state))[2] == Alarm(
        "breaker_tripped", "no_merges", "circuit breaker, no_merges: d", command, later(2)
    )
    (warning,) = breaker_alarms(with_trips(trip(severity="warn")))
    assert warning == Alarm("breaker_warning", "review_loop t", "circuit breaker, review_loop: d", command, NOW)
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
        ("x" * 900, "x" * 400),
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


def test_a_fingerprint_has_the_first_and_the_last_event() -> None:
    settings = BreakerSettings()
    prints = {
        fingerprint(events, settings)
        for events in (
            (),
            (event("merge"),),
            (event("merge", 1),),
            (event("merge"), event("merge", 1)),
            (event("merge"), event("land", 2)),
        )
    }
    assert len(prints) == 5
    assert fingerprint((), settings).startswith("0 none ")
    one = event("merge")
    assert fingerprint((one,), settings).startswith(f"1 {one.evidence} {one.evidence} ")


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("a.py:1", ("a.py", 1)),
        (" ./a/b.py:12 ", ("a/b.py", 12)),
        ("a:b:3", ("a:b", 3)),
        ("a:999999999", ("a", 999999999)),
    ],
)
def test_a_location_is_read(text: str, location: tuple[str, int]) -> None:
    assert line_comments.parse_location(text) == location


EXAMPLE = 'liza verdict reject "…" --task ID --comment src/tax.py:12 "rounds down"'


@pytest.mark.parametrize("text", ["a.py", "a.py:0", ":3", "a.py:x", "a.py:1234567890", "a.py:²", "./:3"])
def test_what_is_no_location_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as refusal:
        line_comments.parse_location(text)
    assert str(refusal.value) == f"{text!r} is not a line of a file: expected FILE:LINE, such as src/tax.py:12"
    assert refusal.value.hint == EXAMPLE


@pytest.mark.parametrize(
    ("comments", "message"),
    [
        ([("a:1", "x")] * 50, None),
        ([("a:1", "x")] * 51, "there are 51 comments; a rejection has at most 50"),
        ([("a:1", "x" * 1000)], None),
        ([("a:1", "x" * 1001)], "the comment on a:1 has 1001 characters; it can have 1000"),
        ([("a:1", "x"), ("b:2", " ")], "the comment on b:2 has no text"),
    ],
)
def test_comments_have_bounds(comments: list[tuple[str, str]], message: str | None) -> None:
    if message is None:
        line_comments.check_comments(comments)
        return
    with pytest.raises(UsageError) as refusal:
        line_comments.check_comments(comments)
    assert (str(refusal.value), refusal.value.hint) == (message, EXAMPLE)


COMMIT = "abcdef0123456789"


@pytest.mark.parametrize(
    ("location", "data", "message"),
    [
        ("a.py:1", None, "a.py is not a file of the reviewed commit abcdef012345"),
        ("a.py:1", b"\0", "a.py is not a text at abcdef012345: it has no line 1"),
        ("a.py:3", b"one\ntwo\n", "a.py has 2 lines at the reviewed commit abcdef012345, and no line 3"),
        ("a.py:1", b"", "a.py has 0 lines at the reviewed commit abcdef012345, and no line 1"),
    ],
)
def test_a_line_that_is_not_there_is_refused(location: str, data: bytes | None, message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        line_comments.quote_comment(location, "x", COMMIT, data)
    assert (str(refusal.value), refusal.value.hint) == (message, "git show --stat abcdef012345")


@pytest.mark.parametrize(
    ("line", "quote"),
    [(1, "  one"), (2, "two"), (3, "x" * 200), (4, f"{'y' * 200}…"), (5, "last")],
)
def test_a_comment_has_its_line_as_it_is_up_to_200_characters(line: int, quote: str) -> None:
    data = f"  one  \ntwo\r\n{'x' * 200}\n{'y' * 201}\nlast".encode()
    comment = line_comments.quote_comment(f"a.py:{line}", " wrong ", COMMIT, data)
    assert comment == LineComment(path="a.py", line=line, text="wrong", quote=quote, commit=COMMIT)
    assert line_comments.format_comment(comment) == f"a.py:{line}: wrong\n> {quote.strip()}"
    assert line_comments.format_comment(replace(comment, quote=" ")) == f"a.py:{line}: wrong"


def sprint(**times: Any) -> Sprint:
    return Sprint(id="s-1", status="IN_PROGRESS", timeline=Timeline(**times))


def test_the_alarms_of_a_sprint_name_its_tasks_and_its_cost() -> None:
    tasks: list[Task] = [task(f"m{number}", Status.MERGED) for number in range(9)]
    tasks += [task("b", Status.BLOCKED), task("o"), task("x", Status.ABANDONED)]
    state = board(*tasks, archived=ArchiveSummary(counts={"MERGED": 2}), sprint=sprint(checkpoint_at=NOW, deadline=NOW))
    checkpoint, deadline = sprint_alarms.sprint_alarms(state, NOW, "$3")
    assert checkpoint == Alarm(
        "checkpoint_due", "s-1 2026-01-01T12:00Z",
        "checkpoint of s-1, due 2026-01-01 12:00Z: 11 merged (m0, m1, m2, m3, m4, m5, m6, m7 and 1 more), 1 open (o), "
        "1 blocked (b); $3", "liza edit",
    )  # fmt: skip
    assert deadline == Alarm(
        "deadline_passed", "s-1",
        "the deadline of s-1 was 2026-01-01 12:00Z, and 2 tasks of it not closed: b, o", "liza edit",
    )  # fmt: skip
    assert list(sprint_alarms.sprint_alarms(replace(state, sprint=sprint()), NOW, "")) == []
    paused = replace(state, sprint=replace(state.sprint, status="CHECKPOINT"))
    assert len(list(sprint_alarms.sprint_alarms(paused, NOW, ""))) == 2
    bare = replace(paused, tasks=(), archived=ArchiveSummary(), sprint=sprint(checkpoint_at=NOW))
    assert "0 merged, 0 open, 0 blocked; " in next(iter(sprint_alarms.sprint_alarms(bare, NOW, ""))).message


def test_the_shortest_retrospective_has_only_what_there_is() -> None:
    end = retrospective.SprintEnd(time=NOW)
    assert retrospective.describe_sprint_end(board(task(iteration=1)), end).splitlines() == [
        "tasks: 1 UNCLAIMED", "tries: 1", "rejections: 0", "failed merges: 0", "crashed sessions: 0",
    ]  # fmt: skip
    reported = board(discovered=(Discovery(id="d-1"),))
    assert "reports: 1 discovery, 0 of them tasks" in retrospective.describe_sprint_end(reported, end).splitlines()


WHO = Resolution(by="human:ann", timestamp=NOW, why="done")


@pytest.mark.parametrize(
    ("details", "message"),
    [
        ({"colour": "red"}, "a discovery has no detail colour, only urgency, severity, recommendation"),
        ({}, "a discovery has an urgency, immediate or deferred; it is missing"),
        ({"urgency": "now"}, "a discovery has an urgency, immediate or deferred; it is 'now'"),
        (
            {"urgency": "deferred", "severity": "bad"},
            "the severity of a discovery is 'bad', expected one of low, medium, high, critical",
        ),
    ],
)
def test_a_discovery_is_refused_with_what_it_needs(details: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        board_reports.add_discovery(board(), Discovery(id="", description="x"), details)
    example = 'liza report discovery "what is wrong, and where" --urgency deferred'
    hint = "liza report --help" if "colour" in details else example
    assert (str(refusal.value), refusal.value.hint) == (message, hint)


def test_a_discovery_gets_the_next_number_and_its_details() -> None:
    state = board(discovered=(Discovery(id="d-4"), Discovery(id="other")))
    details = {"urgency": "immediate", "severity": "high", "recommendation": "stop"}
    after, name = board_reports.add_discovery(state, Discovery(id="", by="coder-1", description="x"), details)
    assert (name, after.discovered[:2]) == ("d-5", state.discovered)
    assert after.discovered[2] == Discovery(
        id="d-5", by="coder-1", description="x", urgency="immediate", severity="high", recommendation="stop"
    )
    assert [one.id for one in board_reports.open_discoveries(after)] == ["d-5", "d-4", "other"]
    assert board_reports.add_discovery(board(), Discovery(id="", description="x"), {"urgency": "deferred"})[1] == "d-1"


def test_reports_are_resolved_by_their_number_and_only_once() -> None:
    anomalies = (Anomaly(timestamp=NOW, type="workaround"), Anomaly(timestamp=NOW, type="spec_gap"))
    state = board(anomalies=anomalies, discovered=(Discovery(id="d-1"), Discovery(id="d-2", converted_to_task="t")))
    after = board_reports.resolve_report(state, "a-2", WHO)
    assert after.anomalies == (anomalies[0], replace(anomalies[1], resolved=WHO))
    assert board_reports.open_anomalies(after) == {"a-1": anomalies[0]}
    found = board_reports.resolve_report(state, "d-1", WHO)
    assert found.discovered == (replace(state.discovered[0], resolved=WHO), state.discovered[1])
    for board_, name, message, hint in (
        (state, "a-3", "there is no discovery or anomaly a-3", "liza status"),
        (state, "a-0", "there is no discovery or anomaly a-0", "liza status"),
        (state, "d-9", "there is no discovery or anomaly d-9", "liza status"),
        (state, "d-2", "d-2 is the task t already", "liza task show t"),
        (after, "a-2", "a-2 was resolved by human:ann: done", "liza status"),
        (found, "d-1", "d-1 was resolved by human:ann: done", "liza status"),
    ):
        with pytest.raises(Exception) as refusal:  # noqa: PT011
            board_reports.resolve_report(board_, name, WHO)
        assert (str(refusal.value), getattr(refusal.value, "hint", "")) == (message, hint)
    with pytest.raises(UsageError) as refusal:
        board_reports.resolve_report(state, "a-1", replace(WHO, why=" "))
    assert (str(refusal.value), refusal.value.hint) == (
        "a-1 is resolved with a reason",
        'liza report resolve a-1 "why"',
    )


def test_an_anomaly_names_the_details_that_it_lacks() -> None:
    lacking = Anomaly(timestamp=NOW, type="trade_off", details={"why": "time", "what": " "})
    with pytest.raises(UsageError) as refusal:
        check_anomaly(lacking)
    assert str(refusal.value) == "a report of trade_off needs the details what, debt_created"
    assert refusal.value.hint == "liza report trade_off TEXT --detail what=… --detail debt_created=…"
    with pytest.raises(
        UsageError, match="'x' is not a kind of report; the kinds are: discovery, retry_loop, "
    ) as unknown:
        check_anomaly(Anomaly(timestamp=NOW, type="x"))
    assert unknown.value.hint == "liza report --help"


@pytest.mark.parametrize(
    ("kind", "details"),
    [
        ("retry_loop", ("count", "error_pattern")),
        ("trade_off", ("what", "why", "debt_created")),
        ("external_blocker", ("blocker_service",)),
        ("assumption_violated", ("assumption", "reality")),
        ("system_ambiguity", ("protocol_section", "question")),
        ("workaround", ()),
    ],
)
def test_some_kinds_of_anomalies_need_details(kind: str, details: tuple[str, ...]) -> None:
    assert missing_details(Anomaly(timestamp=NOW, type=kind)) == details
