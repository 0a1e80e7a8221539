"""Restore a task whose status on the board was not set by a verb. Pure."""

from __future__ import annotations

from datetime import datetime

from liza.rules import transitions
from liza.rules.errors import Refused
from liza.rules.history_events import HistoryEvent
from liza.rules.merging import merge_rules
from liza.rules.model import State, Status, Task
from liza.rules.tasks import claims, picking
from liza.rules.tasks.reviews import REVIEW_OVER
from liza.rules.transitions import Invocation
from liza.rules.value_classes import replace


def restore_command(task_id: str) -> str:
    """Return the command that restores a task."""
    return f"liza restore --task {task_id}"


def forgery_reason(state: State, task: Task) -> str | None:
    """Return why the task's history does not explain its status; None if it does."""
    last = transitions.find_unexplained_step(task)
    if last is not None:
        return f"nothing in its history led there: the last step was {last!r}"
    return merge_rules.merge_obstacle(state, task) if task.status is Status.APPROVED else None


def get_restorable_task(state: State, task_id: str) -> Task | None:
    """Return the task from an earlier board if it can be restored from there; else None."""
    task = state.task(task_id)
    return task if task is not None and task.reservation is None and forgery_reason(state, task) is None else None


def restore_task(state: State, earlier: Task, revision: int, by: str, now: datetime) -> State:
    """Return the board with the task as it was in an earlier revision; all other entries stay as they are now.

    Its coder and its reviewer keep it. If the coder has other work by now, the task is released; if the reviewer has,
    the review is free. Raises Refused.
    """
    task = claims.get_task(state, earlier.id)
    if forgery_reason(state, task) is None:
        raise Refused(f"{task.id} is {task.status}, and its history says how it got there", f"liza task show {task.id}")
    invocation = Invocation(
        now=now, by=by, detail=f"{task.status} was written onto the board; as in revision {revision} again"
    )
    others = replace(state, tasks=_without(state, task.id))
    if earlier.reviewing_by is not None and picking.occupation(others, earlier.reviewing_by) is not None:
        earlier = replace(earlier, **REVIEW_OVER)
    restored = state.with_task(transitions.add_event(replace(earlier, merging=None), HistoryEvent.RESTORE, invocation))
    if earlier.status is not Status.CLAIMED or earlier.assigned_to is None:
        return restored
    other_work = picking.occupation(others, earlier.assigned_to)
    return restored if other_work is None else claims.release(restored, task.id, earlier.run, now, by)


def _without(state: State, task_id: str) -> tuple[Task, ...]:
    return tuple(task for task in state.tasks if task.id != task_id)
