"""How long things took, read off histories."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from liza.rules.model import AlignmentNote, Event, Goal, Sprint, Status, Task, Timeline
from liza.rules.reports import timings
from tests.unit.boards import board

START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def at(minutes: int) -> datetime:
    return START + timedelta(minutes=minutes)


def task(name: str, status: Status, *history: tuple[int, str], detail: str | None = None) -> Task:
    events = tuple(Event(time=at(when), event=what, detail=detail if what == "add" else None) for when, what in history)
    return Task(id=name, status=status, description="d", done_when="w", scope="s", spec_ref="p", history=events)


def test_a_task_takes_from_its_first_claim_to_its_end_and_waits_from_each_question_to_its_answer() -> None:
    steps = ((0, "add"), (2, "claim"), (5, "block"), (9, "unblock"), (10, "claim"), (20, "merge"))
    assert timings.task_times(task("a", Status.MERGED, *steps), at(60)) == timings.TaskTimes(18 * 60, 4 * 60, 2)
    assert timings.task_times(task("b", Status.BLOCKED, *steps[:3]), at(60)) == timings.TaskTimes(58 * 60, 55 * 60, 1)
    assert timings.task_times(task("c", Status.UNCLAIMED, *steps[:1]), at(60)) == timings.TaskTimes(None, 0, 0)


def test_a_draft_that_lacks_something_waits_until_it_is_ready() -> None:
    ready = task("a", Status.UNCLAIMED, (0, "add"), (7, "ready"), detail="spec p is not committed")
    assert timings.task_times(ready, at(60)).waiting == 7 * 60
    asked = task("b", Status.DRAFT, (0, "add"))
    assert timings.task_times(asked, at(60)).waiting == 0


def test_what_waits_at_the_same_time_is_counted_once_and_the_goal_ends_when_it_was_reached() -> None:
    one = task("a", Status.UNCLAIMED, (0, "add"), (1, "claim"), (2, "block"), (10, "unblock"))
    other = task("b", Status.UNCLAIMED, (0, "add"), (1, "claim"), (6, "block"), (12, "unblock"))
    state = board(one, other)
    assert timings.waiting_seconds(state, at(60)) == 10 * 60
    goal = Goal(id="goal", description="g", status="IN_PROGRESS", created=at(0))
    assert timings.goal_seconds(replace(state, goal=goal), at(60)) == 3600
    notes = (AlignmentNote(timestamp=at(30), event="planner-1.2"), AlignmentNote(timestamp=at(50), event="human:ann"))
    reached = replace(goal, status="COMPLETED", alignment_history=notes)
    assert timings.goal_seconds(replace(state, goal=reached), at(60)) == 1800
    ended = Sprint(timeline=Timeline(ended=at(40)))
    assert timings.goal_seconds(replace(state, goal=reached, sprint=ended), at(60)) == 2400
