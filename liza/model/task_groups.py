"""The tasks of a board that many rules ask for, in the order of the board."""

from __future__ import annotations

from liza.model.history_events import HistoryEvent
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


_SHAPED = (HistoryEvent.ADD, HistoryEvent.EDIT)


def is_incomplete(task: Task) -> bool:
    """Return whether a task is a DRAFT because something was missing when it was last added or edited.

    A draft that was requested has no missing parts recorded. It stays a draft until it is edited.
    """
    if task.status is not Status.DRAFT:
        return False
    shaped = next((event for event in reversed(task.history) if event.event in _SHAPED), None)
    return shaped is not None and shaped.detail is not None
