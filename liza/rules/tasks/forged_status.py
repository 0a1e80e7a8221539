"""Putting back a task whose status somebody wrote onto the board that no verb led to. Pure."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from liza.rules import transitions
from liza.rules.errors import Refused
from liza.rules.merging import merge_rules
from liza.rules.model import State, Status, Task
from liza.rules.tasks import claims, picking
from liza.rules.tasks.reviews import REVIEW_OVER
from liza.rules.transitions import Invocation

RESTORE_EVENT = "restore"


def restore_command(task_id: str) -> str:
    """The command that puts a task back."""
    return f"liza restore --task {task_id}"


def forgery_reason(state: State, task: Task) -> str | None:
    """Why nothing in the task's history led to its status; None where all is well."""
    last = transitions.find_unexplained_step(task)
    if last is not None:
        return f"nothing in its history led there: the last step was {last!r}"
    return merge_rules.merge_obstacle(state, task) if task.status is Status.APPROVED else None


def get_restorable_task(state: State, task_id: str) -> Task | None:
    """The task on an earlier board, if it can be put back from there."""
    task = state.task(task_id)
    return task if task is not None and task.reservation is None and forgery_reason(state, task) is None else None


def restore_task(state: State, earlier: Task, revision: int, by: str, now: datetime) -> State:
    """The board with the task as it was in an earlier revision; what went on since on its own is kept.

    Its coder goes on with it. Where the coder has other work by now, the task is free for anybody, and so is a review
    where its reviewer has. Raises Refused.
    """
    task = claims.get_task(state, earlier.id)
    if forgery_reason(state, task) is None:
        raise Refused(f"{task.id} is {task.status}, and its history says how it got there", f"liza task show {task.id}")
    said = Invocation(
        now=now, by=by, detail=f"{task.status} was written onto the board; as in revision {revision} again"
    )
    rest = replace(state, tasks=_without(state, task.id))
    if earlier.reviewing_by is not None and picking.occupation(rest, earlier.reviewing_by) is not None:
        earlier = replace(earlier, **REVIEW_OVER)
    back = state.with_task(transitions.add_event(replace(earlier, merging=None), RESTORE_EVENT, said))
    if earlier.status is not Status.CLAIMED or earlier.assigned_to is None:
        return back
    elsewhere = picking.occupation(rest, earlier.assigned_to)
    return back if elsewhere is None else claims.release(back, task.id, now, by)


def _without(state: State, task_id: str) -> tuple[Task, ...]:
    return tuple(task for task in state.tasks if task.id != task_id)
