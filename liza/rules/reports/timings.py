"""How long things took, read off the board: the goal, each task, and what waited for a person."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from liza.rules.model import FINAL_STATUSES, Event, State, Status, Task
from liza.rules.tasks import drafts

_ASKS = frozenset({"block", "give up review", "deadlock"})
_ANSWERED = frozenset({"unblock", "supersede", "drop"})
_TRY = "claim"
Span = tuple[datetime, datetime]


@dataclass(frozen=True)
class TaskTimes:
    """Of a task: seconds from its first claim to its end or to now, seconds that it waited for a person, and claims."""

    seconds: int | None
    waiting: int
    tries: int


def task_times(task: Task, now: datetime) -> TaskTimes:
    """The times of a task; ``seconds`` is None for one that nobody has taken yet."""
    claims = [event.time for event in task.history if event.event == _TRY]
    over = task.history[-1].time if task.history and task.status in FINAL_STATUSES else now
    seconds = int((over - claims[0]).total_seconds()) if claims else None
    return TaskTimes(seconds, _union_seconds(_waiting_spans(task, now)), len(claims))


def goal_seconds(state: State, now: datetime) -> int | None:
    """Seconds since the goal was set, until it was reached or now; None where the board does not say when."""
    began = state.goal.created or state.sprint.timeline.started
    if began is None:
        return None
    ends = [note.timestamp for note in state.goal.alignment_history if note.timestamp is not None]
    over = max(ends) if ends and state.goal.status != "IN_PROGRESS" else now
    return max(0, int((over - began).total_seconds()))


def waiting_seconds(state: State, now: datetime) -> int:
    """Seconds in which at least one task waited for a person."""
    return _union_seconds(span for task in state.tasks for span in _waiting_spans(task, now))


def _waiting_spans(task: Task, now: datetime) -> list[Span]:
    found, since = [], _draft_since(task)
    for event in task.history:
        if event.event in _ASKS:
            since = since or event.time
        elif since is not None and (event.event in _ANSWERED or event.event == "ready"):
            found.append((since, event.time))
            since = None
    return [*found, *([(since, now)] if since is not None and _still_waits(task) else [])]


def _draft_since(task: Task) -> datetime | None:
    """When a task was added that lacked something."""
    first: Event | None = task.history[0] if task.history else None
    return first.time if first is not None and first.event == "add" and first.detail is not None else None


def _still_waits(task: Task) -> bool:
    return task.status is Status.BLOCKED or drafts.is_incomplete(task)


def _union_seconds(spans: Iterable[Span]) -> int:
    """Seconds in the union of the spans."""
    total, end = 0.0, None
    for start, stop in sorted(spans):
        begin = start if end is None else max(start, end)
        if stop > begin:
            total += (stop - begin).total_seconds()
        end = stop if end is None else max(end, stop)
    return int(total)
