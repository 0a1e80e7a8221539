"""Discoveries and anomalies on the board: how they are added, become tasks, and are resolved."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from liza.alarms.rules.alarm_checks import AlarmFacts, evaluate_alarms
from liza.board.file_store.outside_edits import merge_edit
from liza.breaker.rules import board_reports
from liza.model.errors import LizaError, Refused, UnknownId, UsageError
from liza.model.model import Anomaly, Discovery, Resolution, State, Status
from liza.model.statuses import ANOMALY_TYPES, SESSION_FAILED
from liza.model.transitions import Invocation
from liza.tasks.rules import backlog, planning
from liza.tasks.rules.backlog import RequestContext, TaskFields
from tests.unit.boards import NOW, agents, board, task

ENTRY = Discovery(id="", by="coder-1", during="task-1", description="keys in the log", created=NOW)
WHY = Resolution(by="planner-1", timestamp=NOW, why="the log is not shipped")
FULL = {"description": "d", "done_when": "w", "scope": "s", "spec_ref": "spec.md"}
CONTEXT = RequestContext(Invocation(now=NOW, by="planner-1"), frozenset({"spec.md"}))
OPEN = board(
    task(),
    agents=agents("planner-1"),
    discovered=(replace(ENTRY, id="d-1"), replace(ENTRY, id="d-4", urgency="immediate"), replace(ENTRY, id="odd")),
    anomalies=(Anomaly(timestamp=NOW, type="workaround"), Anomaly(timestamp=NOW, type="spec_gap")),
)
CONVERTED = board_reports.convert_discovery(OPEN, "d-4", "task-1")
RESOLVED = board_reports.resolve_report(OPEN, "d-4", WHY)


def test_a_discovery_has_who_when_what_and_a_new_id() -> None:
    details = {"urgency": "immediate", "severity": "high", "recommendation": "mask them"}
    state, name = board_reports.add_discovery(OPEN, ENTRY, details)
    assert name == "d-5"
    wanted = replace(ENTRY, id="d-5", urgency="immediate", severity="high", recommendation="mask them")
    assert state.discovered == (*OPEN.discovered, wanted)
    assert board_reports.add_discovery(board(), ENTRY, {"urgency": "deferred"})[1] == "d-1"


@pytest.mark.parametrize(
    ("details", "text", "words"),
    [
        ({}, "x", "it is missing"),
        ({"urgency": "soon"}, "x", "'soon'"),
        ({"urgency": "deferred", "severity": "awful"}, "x", "'awful'"),
        ({"urgency": "deferred", "file": "a.py"}, "x", "no detail file"),
        ({"urgency": "deferred"}, " \n", "needs a text"),
        ({"urgency": "deferred"}, "x" * 4001, "the text of a report has 4001 characters; it can have 4000"),
        ({"urgency": "deferred", "recommendation": "x" * 4001}, "x", "the recommendation of a report has 4001"),
    ],
)
def test_a_discovery_that_lacks_something_is_refused(details: dict[str, str], text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        board_reports.add_discovery(board(), replace(ENTRY, description=text), details)


@pytest.mark.parametrize(
    ("state", "name", "why", "error", "words"),
    [
        (OPEN, "d-2", "w", UnknownId, "no discovery or anomaly d-2"),
        (OPEN, "a-0", "w", UnknownId, "a-0"),
        (OPEN, "a-3", "w", UnknownId, "a-3"),
        (OPEN, "d-1", " ", UsageError, "a reason"),
        (CONVERTED, "d-4", "w", Refused, "is the task task-1 already"),
        (RESOLVED, "d-4", "w", Refused, "resolved by planner-1: the log is not shipped"),
        (board_reports.resolve_report(OPEN, "a-2", WHY), "a-2", "w", Refused, "resolved by planner-1"),
    ],
)
def test_what_cannot_be_resolved(state: State, name: str, why: str, error: type[LizaError], words: str) -> None:
    with pytest.raises(error, match=words):
        board_reports.resolve_report(state, name, replace(WHY, why=why))


def test_a_resolution_is_written_down_and_the_others_stay_open() -> None:
    done = board_reports.resolve_report(RESOLVED, "a-1", WHY)
    assert [entry.resolved for entry in done.discovered] == [None, WHY, None]
    assert [entry.resolved for entry in done.anomalies] == [WHY, None]
    assert [entry.id for entry in board_reports.open_discoveries(OPEN)] == ["d-4", "d-1", "odd"], "immediate ones first"
    assert [entry.id for entry in board_reports.open_discoveries(done)] == ["d-1", "odd"]
    assert list(board_reports.open_anomalies(done)) == ["a-2"]


def test_a_discovery_and_its_task_are_converted_in_one_change() -> None:
    fields = TaskFields("fix", **FULL, from_discovery="d-4")
    done = backlog.add(OPEN, [TaskFields("other", **FULL), fields], CONTEXT)
    assert [entry.converted_to_task for entry in done.discovered] == [None, "fix", None]
    with pytest.raises(Refused, match="is the task fix already"):
        backlog.add(done, [replace(fields, id="again")], CONTEXT)
    with pytest.raises(UnknownId):
        backlog.add(OPEN, [replace(fields, from_discovery="d-9")], CONTEXT)


@pytest.mark.parametrize(("state", "is_open"), [(OPEN, True), (CONVERTED, False), (RESOLVED, False)])
def test_an_immediate_discovery_wakes_planners_until_resolved_or_converted(state: State, is_open: bool) -> None:
    assert ("IMMEDIATE_DISCOVERY" in [trigger.name for trigger in planning.find_triggers(state)]) is is_open
    kinds = [alarm.kind for alarm in evaluate_alarms(state, NOW, AlarmFacts())]
    assert ("immediate_discovery" in kinds) is is_open


def test_a_planner_undecided_about_a_discovery_is_not_woken_forever() -> None:
    state, wakes = OPEN, 0
    while isinstance(planning.next_trigger(state), planning.Trigger):
        state, run = planning.claim_planning(state, "planner-1", NOW)
        state, wakes = planning.end_planning(state, run), wakes + 1
    assert wakes == planning.MAX_WAKES
    assert "it waits for a person" in str(planning.next_trigger(state))
    assert isinstance(
        planning.next_trigger(board_reports.add_discovery(state, ENTRY, {"urgency": "immediate"})[0]), planning.Trigger
    )


def test_saving_an_old_board_copy_does_not_reopen_a_report() -> None:
    now = board_reports.resolve_report(RESOLVED, "a-1", WHY)
    edited = replace(OPEN, goal=replace(OPEN.goal, description="another goal"))
    merged = merge_edit(OPEN, now, edited, frozenset())
    assert (merged.discovered, merged.anomalies) == (now.discovered, now.anomalies)
    assert merged.goal.description == "another goal"


@pytest.mark.parametrize("kind", ANOMALY_TYPES)
def test_every_kind_of_anomaly_can_be_reported_as_documented(kind: str) -> None:
    bare = Anomaly(timestamp=NOW, type=kind)
    try:
        board_reports.add_anomaly(board(), bare)
        details = {}
    except UsageError as refused:
        details = {word.split("=")[0]: "3" for word in refused.hint.split() if "=" in word}
        assert details
        with pytest.raises(UsageError):
            board_reports.add_anomaly(board(), replace(bare, details=dict.fromkeys(details, " ")))
    assert board_reports.add_anomaly(board(), replace(bare, details=details)).anomalies[0].type == kind


def test_no_detail_replaces_the_text_of_an_anomaly() -> None:
    assert board_reports.make_details("why", {"what": "x"}) == {"text": "why", "what": "x"}
    with pytest.raises(UsageError, match="cannot be named text"):
        board_reports.make_details("why", {"text": "x"})


def test_the_texts_of_an_anomaly_are_bounded() -> None:
    bare = Anomaly(timestamp=NOW, type="workaround")
    longest = replace(bare, details={"text": "x" * 4000})
    assert board_reports.add_anomaly(board(), longest).anomalies == (longest,)
    with pytest.raises(UsageError, match="the why of a report has 4001 characters"):
        board_reports.add_anomaly(board(), replace(bare, details={"why": "x" * 4001}))
    with pytest.raises(UsageError, match="13 details; it can have 12"):
        board_reports.add_anomaly(board(), replace(bare, details={str(number): "x" for number in range(13)}))


def test_runs_but_not_persons_have_a_limit_of_reports() -> None:
    def report(state: State, by: str) -> State:
        state, _ = board_reports.add_discovery(state, replace(ENTRY, by=by), {"urgency": "immediate"})
        return board_reports.add_anomaly(state, Anomaly(timestamp=NOW, type="workaround", reporter=f"{by}.1"))

    state = board(task())
    for _ in range(20):
        state = report(state, "coder-1")
    with pytest.raises(Refused, match="coder-1 has made 20 such reports"):
        board_reports.add_discovery(state, ENTRY, {"urgency": "deferred"})
    with pytest.raises(Refused, match=r"coder-1\.1 has made 20 such reports"):
        board_reports.add_anomaly(state, Anomaly(timestamp=NOW, type="spec_gap", reporter="coder-1.1"))
    resolved = board_reports.resolve_report(state, "d-1", WHY)
    assert board_reports.add_discovery(resolved, ENTRY, {"urgency": "deferred"})[1] == "d-21"
    # Another run, another agent and another task have their own.
    state = board_reports.add_anomaly(state, Anomaly(timestamp=NOW, type="spec_gap", reporter="coder-1.2"))
    state, _ = board_reports.add_discovery(state, replace(ENTRY, during="task-2"), {"urgency": "deferred"})
    state = report(state, "coder-2")
    anomaly = Anomaly(timestamp=NOW, type="workaround", reporter="human:ann")
    for _ in range(21):
        state, _ = board_reports.add_discovery(state, replace(ENTRY, by="human:ann"), {"urgency": "deferred"})
        state = board_reports.add_anomaly(state, anomaly)
    assert len(state.discovered) == 20 + 1 + 1 + 21


def failed(text: str, task_id: str | None = "task-1") -> Anomaly:
    return Anomaly(timestamp=NOW, task=task_id, reporter="coder-1.1", type=SESSION_FAILED, details={"text": text})


@pytest.mark.parametrize(
    ("first", "second", "count"),
    [
        ("exit code 1. cannot find cargo", "exit code 1. cannot find cargo", 1),
        ("exit code 1. 12 tests failed in 3.41 s at 0fe12ab9", "exit code 1. 12 tests failed in 9.02 s at 7cc01d2e", 1),
        ("exit code 1. cannot find cargo", "exit code 1. the disk quota of this user is exceeded", 2),
    ],
)
def test_a_failed_session_is_reported_once_for_each_cause(first: str, second: str, count: int) -> None:
    state = board(task(), task("task-2"))
    for text, task_id in ((first, "task-1"), (second, "task-2"), (first, None)):
        state = board_reports.add_failed_session(state, failed(text, task_id))
    assert len(state.anomalies) == count
    again = board_reports.resolve_report(state, "a-1", WHY)
    assert len(board_reports.add_failed_session(again, failed(first)).anomalies) == count + 1, "it came back"


@pytest.mark.parametrize(("status", "is_open"), [("UNCLAIMED", True), ("BLOCKED", True), ("MERGED", False)])
def test_a_failed_session_is_open_until_its_task_is_closed(status: str, is_open: bool) -> None:
    state = board_reports.add_failed_session(board(task(status=Status(status))), failed("exit code 1"))
    assert bool(board_reports.open_anomalies(state)) == is_open
    assert board_reports.open_anomalies(replace(state, tasks=())) == {}, "archived"
