"""Why no task is claimed or reviewed now: each reason names what it waits for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from liza.board.rules import archiving
from liza.model.model import ArchiveSummary, Discovery, Event, Reservation, State, Status, Task
from liza.tasks.rules import picking, planning, unclaimable
from liza.tasks.rules.picking import Evidence, NoTask, Pick
from liza.tasks.rules.planning import Trigger
from tests.unit.boards import BASE, HEAD, NOW, agents, board, later, task

S = Status
NOBODY = Evidence()
DEAD = Evidence(offline=frozenset({"coder-1"}), dead=frozenset({"coder-1.1"}))
RESERVED = Reservation(
    agent="coder-2", run="coder-2.1", slot="s4", host="h", boot="b", pid=1, start="1", expires=NOW, previous_run=None
)
LOST = "which is archived and was not merged: ABANDONED"
REVIEW: dict[str, Any] = {
    "assigned_to": "coder-1", "worktree": "s1", "base_commit": BASE, "review_commit": HEAD, "run": "coder-1.1",
}  # fmt: skip
REJECTED: dict[str, Any] = {**REVIEW, "rejection_reason": "no tests\nat all"}
CREW = agents("coder-1", "coder-2", runs=3)
HELD = task(status=S.CLAIMED, lease_expires=later(60), **{**REVIEW, "review_commit": None})


@pytest.mark.parametrize(
    ("waiting", "agent", "evidence", "why"),
    [
        (task(status=S.READY_FOR_REVIEW, **REVIEW), "code-reviewer-1", DEAD, None),
        (task(status=S.READY_FOR_REVIEW, **REVIEW), "coder-2", DEAD, "coder-2 is not a code-reviewer"),
        (task(), "code-reviewer-1", DEAD, "it is to do"),
        (task(status=S.READY_FOR_REVIEW, review="human", **REVIEW), "code-reviewer-1", DEAD, "a person reviews it"),
        (
            task(status=S.READY_FOR_REVIEW, reviewing_by="code-reviewer-2", review_run="code-reviewer-2.1", **REVIEW),
            "code-reviewer-1", DEAD, "code-reviewer-2 is reviewing it",
        ),
        (
            task(status=S.READY_FOR_REVIEW, reviewing_by="code-reviewer-2", review_run="code-reviewer-2.1", **REVIEW),
            "code-reviewer-1", replace(DEAD, abandoned=frozenset({"code-reviewer-2.1"})), None,
        ),
        (
            task(status=S.READY_FOR_REVIEW, **{**REVIEW, "assigned_to": "code-reviewer-1"}), "code-reviewer-1", DEAD,
            "code-reviewer-1 wrote it",
        ),
        (
            task(status=S.READY_FOR_REVIEW, **REVIEW), "code-reviewer-1", NOBODY,
            "its author's session coder-1.1 is not over",
        ),
        (task(status=S.READY_FOR_REVIEW, **{**REVIEW, "run": None}), "code-reviewer-1", NOBODY, None),
    ],
)  # fmt: skip
def test_a_review_is_not_claimed_for_one_reason(waiting: Task, agent: str, evidence: Evidence, why: str | None) -> None:
    assert picking.review_obstacle(waiting, agent, evidence) == why


@pytest.mark.parametrize(
    ("state", "busy"),
    [
        (board(task()), None),
        (board(HELD), "task-1"),
        (board(replace(HELD, assigned_to="coder-2")), None),
        (board(task(reviewing_by="coder-1")), "the review of task-1"),
        (board(task(reservation=replace(RESERVED, agent="coder-1"))), "taking task-1"),
        (board(task(reservation=RESERVED)), None),
        (replace(board(), planning=replace(board().planning, run="coder-1.2")), "planning"),
        (replace(board(), planning=replace(board().planning, run="coder-11.2")), None),
    ],
)
def test_an_agent_is_busy_with_one_thing(state: State, busy: str | None) -> None:
    assert picking.occupation(state, "coder-1") == busy
    if busy is not None:
        assert picking.pick_task(state, "coder-1", NOW, NOBODY) == NoTask(why=f"coder-1 is busy with {busy}")
        assert picking.pick_review(state, "coder-1", NOBODY) == NoTask(why=f"coder-1 is busy with {busy}")


def test_reviews_are_taken_by_priority_and_then_the_longest_waiting_first() -> None:
    def waiting(name: str, priority: int, at: float) -> Task:
        history = (Event(time=later(at), event="submit"),)
        return task(name, S.READY_FOR_REVIEW, priority=priority, history=history, **{**REVIEW, "worktree": name})

    state = board(waiting("late", 2, 9), waiting("early", 2, 1), waiting("first", 1, 20))
    order = []
    while state.tasks:
        pick = picking.pick_review(state, "code-reviewer-1", DEAD)
        assert isinstance(pick, Pick)
        order.append(pick.task.id)
        state = replace(state, tasks=tuple(one for one in state.tasks if one.id != pick.task.id))
    assert order == ["first", "early", "late"]


def test_a_task_without_a_time_is_taken_before_all_others() -> None:
    state = board(task("new"), replace(task("old"), created=None))
    assert picking.pick_task(state, "coder-1", NOW, NOBODY) == Pick(task=state.tasks[1])
    waiting = [replace(task(name, S.READY_FOR_REVIEW, **REVIEW), created=None) for name in ("a", "b")]
    reviewed = board(replace(waiting[0], created=NOW), waiting[1])
    assert picking.pick_review(reviewed, "code-reviewer-1", DEAD) == Pick(task=waiting[1])


URGENT = Discovery(
    id="d-1", by="coder-1", during="t", created=NOW, description="on fire", urgency="immediate", severity="high"
)


@pytest.mark.parametrize(
    ("state", "trigger"),
    [
        (
            board(),
            Trigger(name=planning.WakeTrigger.INITIAL_PLANNING, ids=(), facts="a goal", version=("a goal",)),
        ),
        (
            board(task(), discovered=(URGENT,)),
            Trigger(name=planning.WakeTrigger.IMMEDIATE_DISCOVERY, ids=("d-1",), facts="on fire"),
        ),
        (
            board(task(status=S.BLOCKED, blocked_reason="which?", history=(Event(time=NOW, event="block"),))),
            Trigger(name=planning.WakeTrigger.BLOCKED_TASKS, ids=("task-1",), facts="task-1: which?", version=("1",)),
        ),
        (
            board(task(status=S.BLOCKED, blocked_reason="no", failed_by=("coder-1", "coder-2"))),
            Trigger(
                name=planning.WakeTrigger.HYPOTHESIS_EXHAUSTION, ids=("task-1",), facts="task-1: no", version=("0",)
            ),
        ),
        (
            board(task(status=S.INTEGRATION_FAILED, assigned_to="coder-2", failed_by=("coder-1", "coder-2"))),
            Trigger(
                name=planning.WakeTrigger.INTEGRATION_FAILED, ids=("task-1",),
                facts="task-1: coder-1 and coder-2 failed it",
            ),
        ),
        (
            replace(
                board(task(status=S.MERGED), archived=ArchiveSummary(counts={"MERGED": 2, "ABANDONED": 1})),
                sprint=replace(board().sprint, status="IN_PROGRESS"),
            ),
            Trigger(
                name=planning.WakeTrigger.SPRINT_COMPLETE, ids=(), facts="3 of 4 merged", version=("3", "4")
            ),
        ),
    ],
)  # fmt: skip
def test_a_planner_is_woken_for_each_reason_with_its_facts(state: State, trigger: Trigger) -> None:
    assert planning.find_triggers(state) == (trigger,)
    assert planning.next_trigger(state) == trigger
    planned, run = planning.claim_planning(state, "planner-1", NOW)
    assert planned.planning == replace(
        state.planning, run=run, trigger=trigger.name.value, ids=trigger.ids, fingerprint=trigger.fingerprint, count=1,
        lease_expires=NOW + timedelta(seconds=300),
    )  # fmt: skip
    assert planning.next_trigger(planned) == f"planner-1.1 is planning {trigger.name}"
    assert planning.undo_planning_claim(planned, run).planning == replace(
        planned.planning, run=None, trigger=None, ids=(), lease_expires=None, count=0
    )
    assert planning.undo_planning_claim(planned, "planner-1.9") is planned
    assert planning.end_planning(planned, "planner-1.9") is planned
    counted = replace(planned, planning=replace(planned.planning, count=2))
    assert planning.undo_planning_claim(counted, run).planning.count == 1
    if trigger.name is not planning.WakeTrigger.SPRINT_COMPLETE:
        twice = planning.claim_planning(planning.end_planning(planned, run), "planner-1", NOW)[0]
        assert twice.planning.count == 2
        stuck = planning.end_planning(twice, "planner-1.2")
        about = f" ({', '.join(trigger.ids)})" if trigger.ids else ""
        assert planning.next_trigger(stuck) == (
            f"{planning.WAKE_REASONS[trigger.name]}{about}, and 2 planning sessions changed nothing: "
            "it waits for a person"
        )


def test_the_goal_is_complete_when_a_planner_adds_nothing_to_a_complete_sprint() -> None:
    running = replace(board(task(status=S.MERGED)), sprint=replace(board().sprint, status="IN_PROGRESS"))
    planned, run = planning.claim_planning(running, "planner-1", NOW)
    over = planning.end_planning(planned, run)
    assert (over.goal.status, over.sprint.status) == ("COMPLETED", "COMPLETED")
    added = replace(planned, tasks=(*planned.tasks, task("new")))
    still = planning.end_planning(added, run)
    assert (still.goal.status, still.sprint.status) == ("IN_PROGRESS", "IN_PROGRESS")
    assert planning.is_crew_done(over, True)
    assert [planning.is_crew_done(running, has_planner) for has_planner in (True, False)] == [False, True]
    assert not planning.is_crew_done(added, False)
    assert not planning.is_crew_done(board(), False)
    assert planning.is_crew_done(board(archived=ArchiveSummary(counts={"MERGED": 1})), False)


@pytest.mark.parametrize(
    ("task_fields", "roles", "missing"),
    [
        ({}, {"planner"}, {"coder": ("task-1",)}),
        ({}, {"coder"}, {}),
        ({"status": S.READY_FOR_REVIEW}, {"coder"}, {"code-reviewer": ("task-1",)}),
        ({"status": S.READY_FOR_REVIEW, "review": "human"}, {"coder"}, {}),
        ({"status": S.REJECTED}, set(), {"coder": ("task-1",)}),
        ({"status": S.APPROVED}, set(), {}),
        ({"depends_on": ("x",)}, set(), {}),
    ],
)
def test_roles_that_tasks_wait_for(
    task_fields: dict[str, Any], roles: set[str], missing: dict[str, tuple[str, ...]]
) -> None:
    assert planning.find_missing_roles(board(task(**task_fields)), frozenset(roles)) == missing


@pytest.mark.parametrize(
    ("fields", "roles", "continues", "stalled"),
    [
        ({}, {"coder"}, True, False),
        ({}, {"code-reviewer"}, False, True),
        ({}, set(), False, True),
        ({"failed_by": ("coder-1", "coder-2")}, {"coder"}, False, False),
        ({"depends_on": ("x",)}, {"coder"}, False, False),
        ({"status": S.BLOCKED}, {"coder"}, False, False),
        ({"status": S.BLOCKED}, {"code-reviewer"}, False, True),
        ({"status": S.DRAFT}, {"coder"}, False, False),
        ({"status": S.APPROVED}, {"code-reviewer"}, True, False),
        ({"status": S.APPROVED}, set(), False, True),
        ({"status": S.APPROVED, "merge_hold": "no"}, {"coder"}, False, False),
        ({"status": S.READY_FOR_REVIEW}, {"code-reviewer"}, True, False),
        ({"status": S.READY_FOR_REVIEW, "review": "human"}, {"code-reviewer"}, False, True),
        ({"status": S.MERGED}, {"coder"}, False, False),
    ],
)
def test_a_crew_continues_what_its_roles_can_do(
    fields: dict[str, Any], roles: set[str], continues: bool, stalled: bool
) -> None:
    state = board(task(**fields), agents=CREW)
    assert planning.can_continue(state, frozenset(roles)) is continues
    assert planning.find_stalled_tasks(state, frozenset(roles)) == (("task-1",) if stalled else ())


def test_a_crew_with_a_planner_has_always_somebody_who_can_plan() -> None:
    state = board(task(status=S.BLOCKED, blocked_reason="x"))
    assert planning.can_continue(state, frozenset({"planner"}))
    assert not planning.can_continue(board(task()), frozenset({"planner"}))
    assert planning.current_planner(state) is None
    planned, _ = planning.claim_planning(state, "planner-1", NOW)
    assert planning.current_planner(planned) == "planner-1"
    planning.require_planner(planned, "planner-1.1")


@pytest.mark.parametrize(
    ("other", "mine", "is_over"),
    [
        (Status.DRAFT, Status.MERGED, True),
        (Status.BLOCKED, Status.MERGED, True),
        (Status.BLOCKED, Status.ABANDONED, True),
        (Status.UNCLAIMED, Status.MERGED, False),
        (Status.READY_FOR_REVIEW, Status.MERGED, False),
        (Status.BLOCKED, Status.BLOCKED, False),
    ],
)
def test_a_task_is_over_when_it_is_closed_and_the_others_wait_for_a_person(
    other: Status, mine: Status, is_over: bool
) -> None:
    state = board(task("other", other), task("mine", mine), agents=CREW)
    assert planning.is_task_over(state, "mine", frozenset({"coder", "code-reviewer"})) is is_over


@pytest.mark.parametrize(
    ("tasks", "archived", "reasons"),
    [
        ((task(), task("b", depends_on=("task-1",))), {}, {}),
        ((task(depends_on=("x",)),), {}, {"task-1": "x, which is not on the board"}),
        ((task(depends_on=("x",)),), {"x": S.MERGED}, {}),
        ((task(depends_on=("x",)),), {"x": S.ABANDONED}, {"task-1": f"x, {LOST}"}),
        ((task(depends_on=("a",)), task("a", S.ABANDONED)), {}, {"task-1": "a, which is given up"}),
        (
            (task(depends_on=("b",)), task("b", depends_on=("a",)), task("a", S.ABANDONED)), {},
            {"b": "a, which is given up", "task-1": "b, which can never be claimed itself"},
        ),
        (
            (task(depends_on=("a",)), task("a", S.SUPERSEDED, superseded_by=("c",)), task("c", S.ABANDONED)), {},
            {"task-1": "a, which is given up"},
        ),
        ((task(depends_on=("a",)), task("a", S.SUPERSEDED, superseded_by=("c",)), task("c")), {}, {}),
        ((task(depends_on=("a",)), task("a", S.SUPERSEDED)), {}, {"task-1": "a, which is given up"}),
        ((task(status=S.MERGED, depends_on=("x",)),), {}, {}),
    ],
)  # fmt: skip
def test_a_task_that_can_never_be_claimed_names_what_it_depends_on(
    tasks: tuple[Task, ...], archived: dict[str, Status], reasons: dict[str, str]
) -> None:
    assert unclaimable.find_unclaimable(board(*tasks, archived=ArchiveSummary(outcomes=archived))) == reasons


@pytest.mark.parametrize(
    ("fields", "waits"),
    [
        ({"failed_by": ("coder-1", "coder-2")}, True),
        ({"failed_by": ("coder-1",)}, False),
        ({}, False),
        ({"failed_by": ("coder-1", "coder-2"), "status": S.BLOCKED}, False),
    ],
)
def test_a_task_that_every_coder_failed_waits_for_another_one(fields: dict[str, Any], waits: bool) -> None:
    state = board(task(**fields), agents={**CREW, **agents("planner-1")})
    assert unclaimable.failed_by_every_coder(state, state.tasks[0]) is waits
    assert not unclaimable.failed_by_every_coder(board(task(**fields)), task(**fields))
    if waits:
        text = unclaimable.waits_for_coder_text(state.tasks[0])
        assert text == "task-1 waits for another coder: coder-1, coder-2 failed it before"


def test_work_that_nothing_replaced_is_not_merged_and_outcomes_that_are_known_change_nothing() -> None:
    superseded = task(status=S.SUPERSEDED)
    assert archiving.outcome_of(superseded, {}) is S.ABANDONED
    assert archiving.outcome_of(replace(superseded, superseded_by=("a", "b")), {"a": S.MERGED}) is S.ABANDONED
    state = board(task(depends_on=("a",)), archived=ArchiveSummary(outcomes={"a": S.MERGED}))
    assert archiving.with_outcomes(state, {"a": S.MERGED, "other": S.MERGED}) is state
    assert archiving.with_outcomes(state, {"a": S.ABANDONED}).archived.outcomes == {"a": S.ABANDONED}
