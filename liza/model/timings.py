"""Durations computed from the board: of the goal, of each task, and of waiting for a person."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from liza.model.history_events import ANSWER_EVENTS, QUESTION_EVENTS, HistoryEvent
from liza.model.model import FINAL_STATUSES, Event, State, Status, Task
from liza.model.paths import is_person
from liza.model.statuses import GoalStatus
from liza.model.task_groups import is_incomplete
from liza.model.value_classes import Value

Span = tuple[datetime, datetime]


class TaskTimes(Value):
    """Times of a task: seconds from its first claim to its end or now, seconds it waited for a person, claims."""

    seconds: int | None
    waiting: int
    tries: int


def task_times(task: Task, now: datetime) -> TaskTimes:
    """Return the times of a task; ``seconds`` is None if it was never claimed."""
    claims = [event.time for event in task.history if event.event == HistoryEvent.CLAIM]
    over = task.history[-1].time if task.history and task.status in FINAL_STATUSES else now
    seconds = int((over - claims[0]).total_seconds()) if claims else None
    return TaskTimes(seconds, _union_seconds(waiting_spans(task, now)), len(claims))


def goal_seconds(state: State, now: datetime) -> int | None:
    """Return the seconds from the creation of the goal to its end or now; None if the board has no start time."""
    began = state.goal.created or state.sprint.timeline.started
    if began is None:
        return None
    decisions = (note for note in state.goal.alignment_history if not is_person(note.event))
    ends = [note.timestamp for note in decisions if note.timestamp is not None]
    ended = state.sprint.timeline.ended or max(ends, default=None)
    over = ended if ended is not None and state.goal.status != GoalStatus.IN_PROGRESS else now
    return max(0, int((over - began).total_seconds()))


def waiting_seconds(state: State, now: datetime, archived: Iterable[Span] = ()) -> int:
    """Return the seconds in which at least one task waited for a person. ``archived``: spans of archived tasks."""
    return _union_seconds((*archived, *(span for task in state.tasks for span in waiting_spans(task, now))))


def waiting_spans(task: Task, now: datetime) -> list[Span]:
    """Return the times in which a task waited for a person."""
    spans, since = [], _draft_since(task)
    for event in task.history:
        if event.event in QUESTION_EVENTS:
            since = since or event.time
        elif since is not None and event.event in ANSWER_EVENTS:
            spans.append((since, event.time))
            since = None
    return [*spans, *([(since, now)] if since is not None and _still_waits(task) else [])]


def _draft_since(task: Task) -> datetime | None:
    """Return when the task was added if it was incomplete then; else None."""
    first: Event | None = task.history[0] if task.history else None
    return first.time if first is not None and first.event == HistoryEvent.ADD and first.detail is not None else None


def _still_waits(task: Task) -> bool:
    return task.status is Status.BLOCKED or is_incomplete(task)


def _union_seconds(spans: Iterable[Span]) -> int:
    """Return the seconds in the union of the spans."""
    total, end = 0.0, None
    for start, stop in sorted(spans):
        begin = start if end is None else max(start, end)
        if stop > begin:
            total += (stop - begin).total_seconds()
        end = stop if end is None else max(end, stop)
    return int(total)
