"""The work that an agent holds on the board. Pure."""

from __future__ import annotations

from liza.model.model import State, Status
from liza.model.statuses import WorkKind
from liza.model.task_groups import held_tasks
from liza.model.value_classes import Value
from liza.tasks.rules import planning


class CurrentWork(Value):
    """Work that an agent holds: a claim or a review of ``task``, or planning (``task`` is None)."""

    run: str
    task: str | None
    kind: WorkKind


def find_current_work(state: State, agent: str) -> CurrentWork | None:
    """Return the work that ``agent`` holds on the board; None if it holds none."""
    for task in held_tasks(state):
        if task.status is Status.CLAIMED and task.assigned_to == agent and task.run and task.reservation is None:
            return CurrentWork(task.run, task.id, WorkKind.WORK)
        if task.reviewing_by == agent and task.review_run:
            return CurrentWork(task.review_run, task.id, WorkKind.REVIEW)
    if state.planning.run and planning.current_planner(state) == agent:
        return CurrentWork(state.planning.run, None, WorkKind.PLANNING)
    return None
