"""What a person is told at the checkpoint, at the deadline and at the end of a sprint."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from liza.alarms.rules import alarm_checks as alarms
from liza.alarms.rules.alarm_checks import sprint_alarms
from liza.model.alarm_table import Alarm, waits_for_person
from liza.model.model import Anomaly, ArchiveSummary, Discovery, Event, Goal, Sprint, State, Status, Timeline
from liza.model.transitions import Invocation
from liza.tasks.rules import backlog
from liza.tasks.rules.backlog import RequestContext, TaskFields
from liza.tasks.rules.planning import SprintEnd, claim_planning, describe_sprint_end, end_planning
from tests.unit.boards import NOW, agents, board, later, task

TASKS = (
    task("model", Status.MERGED),
    task("pdf", Status.BLOCKED, blocked_reason="r", blocked_questions=("q",)),
    task("mail"),
    task("fax", Status.ABANDONED),
)


def timed(*, status: str = "IN_PROGRESS", **times: Any) -> State:
    return board(*TASKS, sprint=Sprint(status=status, timeline=Timeline(**times)))


def find(state: State, kind: str) -> list[Alarm]:
    return [alarm for alarm in alarms.evaluate_alarms(state, NOW, alarms.AlarmFacts(cost="$3")) if alarm.kind == kind]


@pytest.mark.parametrize(
    ("state", "kinds"),
    [
        (timed(), []),
        (timed(checkpoint_at=later(1), deadline=later(1)), []),
        (timed(checkpoint_at=NOW), ["checkpoint_due"]),
        (timed(deadline=NOW), ["deadline_passed"]),
        (timed(checkpoint_at=NOW, deadline=NOW, status="COMPLETED"), []),
        (replace(timed(deadline=NOW), tasks=TASKS[:1]), []),
    ],
)
def test_the_times_of_a_sprint_raise_alarms_while_it_runs(state: State, kinds: list[str]) -> None:
    assert [alarm.kind for alarm in sprint_alarms(state, NOW, "$3")] == kinds


def test_a_checkpoint_sums_up_the_sprint_and_stops_nothing() -> None:
    (alarm,) = find(timed(checkpoint_at=NOW), "checkpoint_due")
    assert "1 merged (model), 1 open (mail), 1 blocked (pdf); $3" in alarm.message
    assert not waits_for_person(alarm.kind)
    (alarm,) = find(timed(deadline=NOW), "deadline_passed")
    assert "2 tasks of it not closed: pdf, mail" in alarm.message
    many = tuple(task(f"t{number}") for number in range(200))
    (alarm,) = find(replace(timed(deadline=NOW), tasks=many), "deadline_passed")
    assert len(alarm.message) < 300
    assert "and 192 more" in alarm.message


def test_a_retrospective_counts_tasks_tries_failures_cost_and_time() -> None:
    def happened(*events: str) -> dict[str, Any]:
        return {"history": tuple(Event(time=NOW, event=event) for event in events)}

    state = replace(
        board(
            task("a", Status.MERGED, iteration=3, **happened("reject", "reject", "merge failed")),
            task("b", Status.SUPERSEDED, iteration=1, **happened("deadlock", "crash")),
        ),
        discovered=(Discovery(id="d-1", converted_to_task="a"), Discovery(id="d-2")),
        anomalies=(Anomaly(timestamp=NOW, type="workaround"),),
        archived=ArchiveSummary(counts={"MERGED": 4}, verdicts={"reject": 1}),
        goal=Goal(id="goal", status="IN_PROGRESS", created=NOW),
    )
    assert describe_sprint_end(state, SprintEnd(later(7500), "5k tokens, $3")).splitlines() == [
        "tasks: 5 MERGED, 1 SUPERSEDED",
        "tries: 4, most for a: 3",
        "rejections: 4 (3 by a reviewer, 1 as the last one allowed)",
        "failed merges: 1",
        "crashed sessions: 1",
        "reports: 2 discoveries, 1 of them tasks, 1 workaround",
        "cost: 5k tokens, $3",
        "time: 2 h 5 min",
        "without the tries and merges of 4 archived tasks",
    ]


def test_a_retrospective_lasts_until_a_task_is_added() -> None:
    state, run = claim_planning(board(task("a", Status.MERGED), agents=agents("planner-1")), "planner-1", NOW)
    done = end_planning(state, run, SprintEnd(later(60), "$3"))
    assert done.sprint.timeline.ended == later(60)
    assert "tasks: 1 MERGED" in (done.sprint.retrospective or "")
    context = RequestContext(Invocation(now=NOW, by="human:ana"), frozenset({"s.md"}))
    fields = TaskFields("b", description="d", done_when="w", scope="s", spec_ref="s.md")
    again = backlog.add(done, [fields], context)
    assert (again.sprint.timeline.ended, again.sprint.retrospective) == (None, None)
    unfinished = replace(state, tasks=(*state.tasks, task("c")))
    assert end_planning(unfinished, run, SprintEnd(NOW)).sprint.retrospective is None
