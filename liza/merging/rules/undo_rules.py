"""Undo of a merged task: what builds on it, which tasks refuse it, and what the board records. Pure.

An undone task is ABANDONED: every rule that asks what is on integration, or whether a dependency is met, then has the
right answer from the status alone. Its ``undo`` and its history say that it was merged, and as what it was taken back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from liza.model import targets
from liza.model.errors import Refused
from liza.model.history_events import HistoryEvent
from liza.model.model import FINAL_STATUSES, State, Status, Task, Undo
from liza.model.statuses import describe_task
from liza.model.transitions import Invocation, apply_verb
from liza.model.value_classes import Value, replace
from liza.tasks.rules.claims import get_task

S = Status


class Dependents(Value):
    """The tasks that depend on a task. ``merged``: in the order in which they have to be undone before it."""

    merged: tuple[str, ...] = ()
    open: tuple[str, ...] = ()


def is_undone(task: Task) -> bool:
    """Return whether the merge of the task was taken back."""
    return task.undo is not None and not targets.is_being_undone(task)


def require_merged(task: Task) -> None:
    """Raise Refused if the task has no merge that can be undone, with the command for its state."""
    if task.status is S.MERGED:
        return
    if task.status is S.SUPERSEDED:
        successor = next(iter(task.superseded_by), "")
        hint = f"liza undo {successor}" if successor else f"liza task show {task.id}"
        raise Refused(f"{describe_task(task.id, task.status)} and was never merged", hint)
    if task.status in FINAL_STATUSES:
        raise Refused(f"{describe_task(task.id, task.status)} and was never merged", f"liza task show {task.id}")
    message = f"{describe_task(task.id, task.status)} and not merged: there is nothing to undo"
    raise Refused(message, f'liza task drop {task.id} "it is not wanted any more"')


def find_dependents(tasks: Iterable[Task], task_id: str) -> Dependents:
    """Return the tasks that depend on a task, on one that it replaces, or on another dependent, at any distance.

    ``tasks``: those of the board and of the archive.
    """
    by_id = {task.id: task for task in tasks}
    waiting_for = {task.id: _find_needs(by_id, task) for task in by_id.values() if _counts(task)}
    merged = {name: needs for name, needs in waiting_for.items() if by_id[name].status is S.MERGED}
    affected = _reach(merged, task_id)
    order = sorted(affected, key=lambda name: (len(_reach(merged, name)), -_merged_at(by_id[name])))
    direct = (name for name, needs in waiting_for.items() if name not in merged and task_id in needs)
    return Dependents(tuple(order), tuple(direct))


def _counts(task: Task) -> bool:
    return task.status is S.MERGED or task.status not in FINAL_STATUSES


def _find_needs(by_id: Mapping[str, Task], task: Task) -> frozenset[str]:
    return frozenset(needed.id for needed in targets.with_replacements(task.depends_on, by_id.get))


def _reach(needs: Mapping[str, frozenset[str]], task_id: str) -> frozenset[str]:
    """Return the tasks that depend on a task, directly or through others."""
    reached: set[str] = set()
    frontier = {task_id}
    while frontier:
        frontier = {name for name, others in needs.items() if others & frontier} - reached - {task_id}
        reached |= frontier
    return frozenset(reached)


def _merged_at(task: Task) -> float:
    """Return when a task was merged, in seconds; 0 if its history does not say."""
    times = [event.time.timestamp() for event in task.history if event.event == HistoryEvent.MERGE]
    return times[-1] if times else 0.0


def refuse_dependents(task_id: str, dependents: Dependents) -> None:
    """Raise Refused if merged tasks build on the task: they have to be undone first."""
    names = dependents.merged
    if names:
        builds = f"{', '.join(names)} {'builds' if len(names) == 1 else 'build'} on {task_id} and"
        order = "is merged: undo it first" if len(names) == 1 else "are merged: undo them first, in this order"
        raise Refused(f"{builds} {order}", f"liza undo {names[0]}")


def describe_open(task_id: str, names: Sequence[str]) -> str:
    """Return what happens to the open tasks that depend on an undone one; empty without any."""
    if not names:
        return ""
    waits = "depends on it and waits" if len(names) == 1 else "depend on it and wait"
    return f"{', '.join(names)} {waits}, until another task takes the place of {task_id} or the dependency is removed"


def begin_undo(state: State, task: Task, undo: Undo) -> State:
    """Record a tested revert before the branch moves. Raises Refused if the task has changed since it was read."""
    current = get_task(state, task.id)
    if current.status is not S.MERGED or current.merge_commit != task.merge_commit:
        raise Refused(f"{task.id} has changed meanwhile: nothing was undone", f"liza task show {task.id}")
    return state.with_task(replace(current, undo=undo))


def drop_undo(state: State, task_id: str) -> State:
    """Remove the record of a revert that was not published. The task stays MERGED."""
    task = state.task(task_id)
    if task is None or not targets.is_being_undone(task):
        return state
    return state.with_task(replace(task, undo=None))


def record_undone(state: State, task_id: str, now: datetime) -> State:
    """Record that the branch has the revert of the task. Can be repeated. Raises Refused."""
    task = get_task(state, task_id)
    if task.undo is None or task.status is not S.MERGED:
        return state
    undo = task.undo
    invocation = Invocation(now=now, by=undo.by, commit=undo.commit, detail=undo.because or None)
    undone = apply_verb(task, HistoryEvent.UNDO, invocation, undo=replace(undo, by="", because=""))
    return state.with_task(undone)


def find_unfinished(state: State) -> tuple[Task, ...]:
    """Return the tasks whose revert was tested, and of which it is not recorded whether it was published."""
    return tuple(filter(targets.is_being_undone, state.tasks))
