"""The tasks of a board that many rules ask for, in the order of the board."""

from __future__ import annotations

from liza.model.model import State, Status, Task


def tasks_with(state: State, status: Status) -> list[Task]:
    """Return the tasks with that status."""
    return [task for task in state.tasks if task.status is status]


def held_tasks(state: State) -> list[Task]:
    """Return the tasks that an agent claims, has claimed or reviews."""
    return [
        task
        for task in state.tasks
        if task.status is Status.CLAIMED
        or task.reviewing_by is not None
        or task.review_run is not None
        or task.reservation is not None
    ]


def changed_tasks(before: State, after: State) -> list[Task]:
    """Return the tasks of ``after`` that may differ from those of ``before``: an entry that is the same is kept."""
    previous = set(map(id, before.tasks))
    return [task for task in after.tasks if id(task) not in previous]
