"""Why no task is claimed or reviewed now: each reason names what it waits for."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from liza.board.rules import archiving
from liza.model.model import ArchiveSummary, Event, Status, Task
from liza.tasks.rules import picking, planning
from liza.tasks.rules.picking import Evidence, Pick
from tests.unit.boards import BASE, HEAD, NOW, agents, board, later, task

S = Status
DEAD = Evidence(offline=frozenset({"coder-1"}), dead=frozenset({"coder-1.1"}))
LOST = "which is archived and was not merged: ABANDONED"
REVIEW: dict[str, Any] = {
    "assigned_to": "coder-1", "worktree": "s1", "base_commit": BASE, "review_commit": HEAD, "run": "coder-1.1",
}  # fmt: skip
REJECTED: dict[str, Any] = {**REVIEW, "rejection_reason": "no tests\nat all"}
CREW = agents("coder-1", "coder-2", runs=3)


def test_reviews_are_taken_by_priority_and_then_by_waiting_time() -> None:
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


def test_the_goal_is_complete_when_a_planner_adds_nothing_more() -> None:
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
def test_a_task_is_over_when_only_a_person_can_continue(other: Status, mine: Status, is_over: bool) -> None:
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
def test_a_task_that_can_never_be_claimed_names_its_dependency(
    tasks: tuple[Task, ...], archived: dict[str, Status], reasons: dict[str, str]
) -> None:
    assert picking.find_unclaimable(board(*tasks, archived=ArchiveSummary(outcomes=archived))) == reasons


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
    assert picking.failed_by_every_coder(state, state.tasks[0]) is waits
    assert not picking.failed_by_every_coder(board(task(**fields)), task(**fields))
    if waits:
        text = picking.waits_for_coder_text(state.tasks[0])
        assert text == "task-1 waits for another coder: coder-1, coder-2 failed it before"


def test_unreplaced_work_is_not_merged_and_known_outcomes_change_nothing() -> None:
    superseded = task(status=S.SUPERSEDED)
    assert archiving.outcome_of(superseded, {}) is S.ABANDONED
    assert archiving.outcome_of(replace(superseded, superseded_by=("a", "b")), {"a": S.MERGED}) is S.ABANDONED
    state = board(task(depends_on=("a",)), archived=ArchiveSummary(outcomes={"a": S.MERGED}))
    assert archiving.with_outcomes(state, {"a": S.MERGED, "other": S.MERGED}) is state
    assert archiving.with_outcomes(state, {"a": S.ABANDONED}).archived.outcomes == {"a": S.ABANDONED}
