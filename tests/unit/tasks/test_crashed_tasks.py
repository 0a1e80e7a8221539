"""A task whose sessions crash comes after the healthy ones, and another coder tries it first."""

from __future__ import annotations

import pytest

from liza.model.model import Event, Status, Task
from liza.model.session_ends import SessionOutcome
from liza.tasks.rules import coding, picking
from liza.tasks.rules.picking import Evidence, NoTask, Pick
from liza.tasks.rules.work_record import PREFERENCE_SECONDS
from tests.unit.boards import HEAD, agents, board, claimed, later, task

ONLINE = Evidence(online=frozenset({"coder-1", "coder-2"}))


def with_events(*events: str, name: str = "task-1", agent: str = "coder-1", priority: int = 1) -> Task:
    history = tuple(Event(time=later(0), event=event, agent=agent) for event in events)
    return task(name, history=history, priority=priority)


@pytest.mark.parametrize(
    ("events", "count"),
    [
        ((), 0),
        (("add", "claim", "crash"), 1),
        (("claim", "crash", "resume", "crash", "release", "claim", "crash"), 3),
        (("claim", "crash", "resume", "stop", "resume", "crash"), 2),
        (("claim", "crash", "resume", "quota", "resume", "held up", "unanswered", "crash"), 2),
        (("claim", "crash", "resume", "ended", "resume", "crash"), 1),
        (("claim", "crash", "resume", "handoff", "resume", "crash"), 1),
        (("claim", "crash", "crash", "submit", "reject"), 0),
        (("claim", "crash", "crash", "block", "unblock"), 0),
    ],
)
def test_only_crashes_since_the_last_working_session_count(events: tuple[str, ...], count: int) -> None:
    assert picking.crashes_in_a_row(with_events(*events)) == count


def test_a_task_that_crashed_comes_after_healthy_tasks() -> None:
    once, twice = with_events("crash"), with_events("crash", "crash")
    healthy = with_events(name="task-2", priority=5)
    assert picking.pick_task(board(once, healthy), "coder-1", later(1), Evidence()) == Pick(healthy)
    assert picking.pick_task(board(twice, healthy), "coder-1", later(1), Evidence()) == Pick(healthy)


@pytest.mark.parametrize(
    ("others", "status"),
    [
        ((), Status.CLAIMED),
        ((with_events("crash", name="task-2"),), Status.CLAIMED),
        ((task("task-2", Status.DRAFT),), Status.CLAIMED),
        ((task("task-2", depends_on=("task-1",)),), Status.CLAIMED),
        ((task("task-2"),), Status.UNCLAIMED),
        ((with_events("crash", "submit", "reject", name="task-2"),), Status.UNCLAIMED),
    ],
)
def test_one_crash_releases_a_task_for_an_untried_one(others: tuple[Task, ...], status: Status) -> None:
    state, run = claimed(board(task(), *others))
    ended = coding.record_session_end(
        state, "task-1", run, outcome=SessionOutcome.CRASHED, detail="exit 1", moved=False, now=later(1)
    )
    assert ended.tasks[0].status is status
    assert ended.tasks[0].failed_by == ()


@pytest.mark.parametrize(
    ("tasks", "is_left"),
    [
        ((), False),
        ((with_events("crash"),), False),
        ((with_events("crash"), task("task-2")), True),
        ((with_events("crash"), task("task-2", Status.DRAFT)), False),
        ((with_events("crash"), task("task-2", depends_on=("task-1",))), False),
        ((with_events("crash"), task("task-2", failed_by=("coder-1",))), False),
        ((with_events("crash", "submit"),), True),
    ],
)
def test_a_claimable_task_without_a_crash_is_untried(tasks: tuple[Task, ...], is_left: bool) -> None:
    assert picking.has_untried(board(*tasks), "coder-1", later(1), Evidence()) is is_left


def test_a_claimed_task_is_untried_for_its_own_coder_alone() -> None:
    state, _ = claimed(board(task()))
    assert picking.has_untried(state, "coder-1", later(1), Evidence())
    assert not picking.has_untried(state, "coder-2", later(1), Evidence())


@pytest.mark.parametrize(("without_verdict", "is_left"), [(0, True), (1, False)])
def test_a_review_without_a_failed_session_is_untried(without_verdict: int, is_left: bool) -> None:
    waits = {"status": Status.READY_FOR_REVIEW, "assigned_to": "coder-1", "review_commit": HEAD}
    state = board(task("task-1", reviews_without_verdict=without_verdict, **waits))
    assert picking.has_untried(state, "code-reviewer-1", later(1), Evidence()) is is_left


def test_another_coder_tries_a_crashed_task_before_its_last_one() -> None:
    crashed = with_events("crash", "crash")
    state = board(crashed, agents=agents("coder-1", "coder-2"))
    assert picking.pick_task(state, "coder-2", later(1), ONLINE) == Pick(crashed)
    kept = "task-1: its last 2 sessions crashed: coder-2 tries it before coder-1"
    assert picking.pick_task(state, "coder-1", later(1), ONLINE) == NoTask(kept, PREFERENCE_SECONDS - 1.0)


@pytest.mark.parametrize(
    ("events", "passed", "online"),
    [
        (("crash",), 1, {"coder-1", "coder-2"}),
        (("crash", "crash"), PREFERENCE_SECONDS, {"coder-1", "coder-2"}),
        (("crash", "crash"), 1, {"coder-1"}),
        (("crash", "crash"), -1, {"coder-1", "coder-2"}),
    ],
)
def test_a_crashed_task_is_taken_by_another_agent(events: tuple[str, ...], passed: int, online: set[str]) -> None:
    crashed = with_events(*events)
    state = board(crashed, agents=agents("coder-1", "coder-2"))
    assert picking.pick_task(state, "coder-1", later(passed), Evidence(online=online)) == Pick(crashed)


def test_a_crashed_task_is_not_kept_for_its_failed_coder() -> None:
    crashed = with_events("crash", "crash")
    state = board(task(**{**_fields(crashed), "failed_by": ("coder-2",)}), agents=agents("coder-1", "coder-2"))
    assert isinstance(picking.pick_task(state, "coder-1", later(1), ONLINE), Pick)


def _fields(given: Task) -> dict[str, object]:
    return {"history": given.history, "priority": given.priority}


def test_a_review_without_a_verdict_comes_after_the_others() -> None:
    waits = {"status": Status.READY_FOR_REVIEW, "assigned_to": "coder-1", "review_commit": HEAD}
    crashed, healthy = (
        task("task-1", priority=1, reviews_without_verdict=1, **waits),
        task("task-2", priority=5, **waits),
    )
    assert picking.pick_review(board(crashed, healthy), "code-reviewer-1", Evidence()) == Pick(healthy)
    assert picking.pick_review(board(crashed), "code-reviewer-1", Evidence()) == Pick(crashed)
