"""How long things took, read off histories."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from liza.model import derived
from liza.model.model import AlignmentNote, Event, Goal, Sprint, Status, Task, Timeline
from tests.unit.boards import board

START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def at(minutes: int) -> datetime:
    return START + timedelta(minutes=minutes)


def task(name: str, status: Status, *history: tuple[int, str], detail: str | None = None) -> Task:
    events = tuple(Event(time=at(when), event=what, detail=detail if what == "add" else None) for when, what in history)
    return Task(id=name, status=status, description="d", done_when="w", scope="s", spec_ref="p", history=events)


def test_a_tasks_time_runs_from_first_claim_to_end() -> None:
    steps = ((0, "add"), (2, "claim"), (5, "block"), (9, "unblock"), (10, "claim"), (20, "merge"))
    assert derived.task_times(task("a", Status.MERGED, *steps), at(60)) == derived.TaskTimes(18 * 60, 4 * 60, 2)
    assert derived.task_times(task("b", Status.BLOCKED, *steps[:3]), at(60)) == derived.TaskTimes(58 * 60, 55 * 60, 1)
    assert derived.task_times(task("c", Status.UNCLAIMED, *steps[:1]), at(60)) == derived.TaskTimes(None, 0, 0)


def test_a_draft_that_lacks_something_waits_until_it_is_ready() -> None:
    ready = task("a", Status.UNCLAIMED, (0, "add"), (7, "ready"), detail="spec p is not committed")
    assert derived.task_times(ready, at(60)).waiting == 7 * 60
    asked = task("b", Status.DRAFT, (0, "add"))
    assert derived.task_times(asked, at(60)).waiting == 0


def test_simultaneous_waits_are_counted_once_until_the_goal() -> None:
    one = task("a", Status.UNCLAIMED, (0, "add"), (1, "claim"), (2, "block"), (10, "unblock"))
    other = task("b", Status.UNCLAIMED, (0, "add"), (1, "claim"), (6, "block"), (12, "unblock"))
    state = board(one, other)
    assert derived.waiting_seconds(state, at(60)) == 10 * 60
    goal = Goal(id="goal", description="g", status="IN_PROGRESS", created=at(0))
    assert derived.goal_seconds(replace(state, goal=goal), at(60)) == 3600
    notes = (AlignmentNote(timestamp=at(30), event="planner-1.2"), AlignmentNote(timestamp=at(50), event="human:ann"))
    reached = replace(goal, status="COMPLETED", alignment_history=notes)
    assert derived.goal_seconds(replace(state, goal=reached), at(60)) == 1800
    ended = Sprint(timeline=Timeline(ended=at(40)))
    assert derived.goal_seconds(replace(state, goal=reached, sprint=ended), at(60)) == 2400


def test_a_goal_lasts_until_its_last_decision() -> None:
    assert derived.goal_seconds(board(), at(60)) is None
    goal = Goal(id="goal", description="g", status="IN_PROGRESS")
    by_sprint = replace(board(), goal=goal, sprint=Sprint(timeline=Timeline(started=at(10), ended=at(20))))
    assert derived.goal_seconds(by_sprint, at(60)) == 50 * 60, "it is open again: the earlier end does not count"
    assert derived.goal_seconds(replace(by_sprint, goal=replace(goal, status="COMPLETED")), at(60)) == 10 * 60
    notes = tuple(AlignmentNote(timestamp=when, event="planner-1.2") for when in (at(30), None, at(40), at(35)))
    done = replace(goal, status="COMPLETED", created=at(0), alignment_history=notes)
    assert derived.goal_seconds(replace(board(), goal=done), at(60)) == 40 * 60
    assert derived.goal_seconds(replace(board(), goal=replace(done, alignment_history=())), at(60)) == 3600
    assert derived.goal_seconds(replace(board(), goal=replace(done, created=at(50))), at(60)) == 0


def test_a_repeated_question_or_unasked_answer_starts_no_new_wait() -> None:
    twice = task("a", Status.UNCLAIMED, (0, "add"), (1, "unblock"), (2, "block"), (5, "block"), (9, "unblock"))
    assert derived.waiting_spans(twice, at(60)) == [(at(2), at(9))]
    again = task("b", Status.BLOCKED, (0, "add"), (2, "block"), (9, "unblock"), (20, "block"))
    assert derived.waiting_spans(again, at(60)) == [(at(2), at(9)), (at(20), at(60))]
    assert derived.waiting_spans(task("c", Status.UNCLAIMED, (0, "add"), (2, "block")), at(60)) == []
    assert derived.waiting_spans(task("d", Status.DRAFT, (3, "add"), detail="no spec"), at(60)) == [(at(3), at(60))]
    assert derived.waiting_spans(task("e", Status.UNCLAIMED), at(60)) == []


def test_overlapping_and_separate_spans_are_added_with_archived_ones() -> None:
    outer = task("a", Status.UNCLAIMED, (0, "add"), (10, "block"), (30, "unblock"))
    inner = task("b", Status.UNCLAIMED, (0, "add"), (12, "block"), (15, "unblock"))
    archived = [(at(28), at(40)), (at(50), at(51)), (at(0), at(1))]
    assert derived.waiting_seconds(board(outer, inner), at(60), archived) == (30 + 1 + 1) * 60
    asks = task("c", Status.BLOCKED, (55, "block"))
    assert derived.waiting_seconds(board(asks), at(60)) == 5 * 60


def test_a_closed_task_that_was_never_claimed_takes_no_time() -> None:
    dropped = task("a", Status.ABANDONED, (0, "add"), (5, "claim"), (8, "drop"))
    assert derived.task_times(dropped, at(60)) == derived.TaskTimes(3 * 60, 0, 1)
    assert derived.task_times(task("b", Status.ABANDONED), at(60)) == derived.TaskTimes(None, 0, 0)
