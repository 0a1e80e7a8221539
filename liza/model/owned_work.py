"""The work that an agent holds on the board. Pure."""

from __future__ import annotations

from liza.model.errors import NotOwner
from liza.model.model import State, Status
from liza.model.paths import agent_of
from liza.model.statuses import WorkKind
from liza.model.task_groups import held_tasks
from liza.model.value_classes import Value


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
    if state.planning.run and current_planner(state) == agent:
        return CurrentWork(state.planning.run, None, WorkKind.PLANNING)
    return None


def require_planner(state: State, run: str) -> None:
    """Check that ``run`` is the planning run (fencing check). Raises NotOwner."""
    if state.planning.run != run:
        raise NotOwner(
            f"{run} is not the planning run, which is {state.planning.run or 'none'}. Stop at once", "liza status"
        )


def current_planner(state: State) -> str | None:
    """Return the agent that plans now, or None."""
    return agent_of(state.planning.run) if state.planning.run else None
