"""The merge queue: the order of approved tasks, the next batch, and what a person may change about it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from liza.config.rules import test_proof
from liza.merging.rules import merge_rules
from liza.merging.rules.merge_rules import MergeFailureKind
from liza.model import targets
from liza.model.errors import Refused, UsageError
from liza.model.model import Config, State, Status, Task
from liza.model.state_words import describe_task
from liza.model.task_groups import tasks_with
from liza.model.value_classes import Value, replace
from liza.tasks.rules.claims import get_task
from liza.tasks.rules.picking import unmet_dependencies

_ALONE = frozenset({MergeFailureKind.DIED, MergeFailureKind.FAILED, MergeFailureKind.BATCH})
"""After a failure of these kinds the task is merged alone, so that it cannot stop others again."""


class QueueEntry(Value):
    """An approved task in the queue. ``obstacle``: why it is not merged now, and the command for that; None if it is
    merged in its turn."""

    task: Task
    obstacle: tuple[str, str] | None


def ordered_queue(state: State, now: datetime) -> tuple[QueueEntry, ...]:
    """Return all approved tasks in the order in which they are merged, each with its obstacle."""
    tasks = sorted((task for task in tasks_with(state, Status.APPROVED) if task.history), key=merge_rules.queue_key)
    red = merge_rules.find_red_branches(state)
    paused = {branch: red[branch].reason for branch in merge_rules.find_paused_branches(state, now)}
    return tuple(QueueEntry(task, _find_obstacle(state, task, now, paused)) for task in tasks)


def choose_batch(state: State, head: Task, now: datetime) -> tuple[Task, ...]:
    """Return the tasks to merge together, ``head`` first: at most ``config.queue.batch``, all into one branch.

    A task whose last merge failed is alone in its batch, and each is if the tests examine only the last commit.
    """
    if is_alone(head):
        return (head,)
    others = [
        entry.task
        for entry in ordered_queue(state, now)
        if entry.obstacle is None
        and entry.task.id != head.id
        and not is_alone(entry.task)
        and (entry.task.epic, entry.task.target) == (head.epic, head.target)
    ]
    return (head, *others[: max(0, batch_size(state.config) - 1)])


def batch_size(config: Config) -> int:
    """Return the most tasks that are merged together. Tests of the last commit would examine only the last of them."""
    return 1 if test_proof.reads_last_commit(config) else config.queue.batch


def plan_batches(tasks: Sequence[Task], size: int) -> tuple[tuple[Task, ...], ...]:
    """Return the batches of at most ``size`` in which tasks are merged, if all stays as it is.

    ``tasks`` are in the order of the queue. Each batch has the first of them that is left, and others with its branch.
    """
    rest, batches = list(tasks), []
    while rest:
        head = rest[0]
        same = [task for task in rest if (task.epic, task.target) == (head.epic, head.target)][:size]
        batches.append(tuple(same))
        rest = [task for task in rest if task not in same]
    return tuple(batches)


def is_alone(task: Task) -> bool:
    """Return whether the task must not share a batch. A red branch is no fault of the task that records it."""
    return task.set_aside is not None and task.set_aside.kind in _ALONE and not task.set_aside.branch


def _find_obstacle(state: State, task: Task, now: datetime, paused: Mapping[str, str]) -> tuple[str, str] | None:
    """Return why a task is not merged now, and the command for that. ``paused``: red branches, each with the reason."""
    if task.merge_hold is not None:
        return f"held: {task.merge_hold}", f"liza queue release {task.id}"
    if task.merging is not None and task.merging.waiting:
        return f"waits for files in your checkout: {', '.join(task.merging.waiting)}", f"liza merge {task.id}"
    red = paused.get(targets.target_branch(state, task))
    if red is not None:
        return f"set aside: {' '.join(red.split())}", f"liza merge {task.id}"
    if merge_rules.is_paused(task, now):
        assert task.set_aside is not None
        return f"set aside: {' '.join(task.set_aside.reason.split())}", f"liza queue retry {task.id}"
    unmet = unmet_dependencies(state, task)
    if unmet:
        return f"depends on {', '.join(unmet)}", f"liza task show {unmet[0]}"
    forged = merge_rules.merge_obstacle(state, task)
    if forged is not None:
        return forged, f"liza history {task.id} --all"
    untested = test_proof.untested_reason(state.config)
    if untested is not None:
        return f"untested: {untested.text}", untested.hint
    return None


def refuse_held(task: Task) -> None:
    """Raise Refused if a person holds the task."""
    if task.merge_hold is not None:
        raise Refused(f"{task.id} is held: {task.merge_hold}", f"liza queue release {task.id}")


def hold(state: State, task_id: str, reason: str) -> State:
    """Keep an open task out of the queue until ``release``. Raises Refused, UsageError."""
    task = get_task(state, task_id)
    if task.status in (Status.MERGED, Status.SUPERSEDED, Status.ABANDONED):
        raise Refused(f"{describe_task(task_id, task.status)}: it is in no queue", "liza queue")
    if task.is_being_merged:
        raise Refused(f"{task_id} is being merged right now", "liza queue")
    if not reason.strip():
        raise UsageError("the reason is empty", f'liza queue hold {task_id} "why"')
    return state.with_task(replace(task, merge_hold=" ".join(reason.split())))


def release(state: State, task_id: str) -> State:
    """End the hold of a task, so that it can be merged. A task that is not held is left as it is. Raises Refused."""
    return state.with_task(replace(get_task(state, task_id), merge_hold=None))


def retry(state: State, task_id: str) -> State:
    """End the pause after a failed merge: the next merger tries it. Raises Refused."""
    task = merge_rules.get_approved_task(state, task_id)
    refuse_held(task)
    branch = targets.target_branch(state, task)
    if branch in merge_rules.find_red_branches(state):
        return merge_rules.retry_red_branch(state, branch)
    if task.set_aside is None:
        return state
    return state.with_task(replace(task, set_aside=replace(task.set_aside, until=None)))


def move(state: State, task_id: str, position: int) -> State:
    """Put an approved task at a position of the queue, counted from 1. Raises Refused, UsageError.

    A moved task goes before all that were not moved: ranks count before priorities, and only those of the tasks up to
    its position change.
    """
    task = merge_rules.get_approved_task(state, task_id)
    others = [other for other in sorted(_queued(state), key=merge_rules.queue_key) if other.id != task_id]
    if not 1 <= position <= len(others) + 1:
        raise UsageError(f"there is no position {position}: the queue has {len(others) + 1}", "liza queue")
    ahead, behind = others[: position - 1], others[position - 1 :]
    rank = behind[0].merge_rank + 1 if behind else 1
    for number, moved in enumerate((task, *reversed(ahead))):
        if moved.merge_rank != rank + number:
            state = state.with_task(replace(moved, merge_rank=rank + number))
    return state


def _queued(state: State) -> list[Task]:
    return [task for task in tasks_with(state, Status.APPROVED) if task.history]
