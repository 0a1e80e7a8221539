"""The tasks of a board in groups that many rules ask for, found once for each board.

A supervisor of a large crew evaluates some twenty rules for each revision, and most of them concern few tasks: those
that an agent holds, or those of one status. A search through thousands of tasks by each rule would be most of its work.
"""

from __future__ import annotations

from functools import cached_property

from liza.rules.model import State, Status, Task


class TaskGroups:
    """Groups of the tasks of one board, each in the order of the board."""

    def __init__(self, tasks: tuple[Task, ...]) -> None:
        self.tasks = tasks

    @cached_property
    def by_status(self) -> dict[Status, list[Task]]:
        """The tasks of each status; a status without a task is missing."""
        groups: dict[Status, list[Task]] = {}
        for task in self.tasks:
            groups.setdefault(task.status, []).append(task)
        return groups

    @cached_property
    def held(self) -> list[Task]:
        """The tasks that an agent claims, has claimed or reviews."""
        return [
            task
            for task in self.tasks
            if task.status is Status.CLAIMED
            or task.reviewing_by is not None
            or task.review_run is not None
            or task.reservation is not None
        ]


_last_groups = TaskGroups(())


def task_groups(state: State) -> TaskGroups:
    """Return the groups of the tasks of ``state``."""
    global _last_groups
    groups = _last_groups
    if groups.tasks is not state.tasks:
        _last_groups = groups = TaskGroups(state.tasks)
    return groups


def changed_tasks(before: State, after: State) -> list[Task]:
    """Return the tasks of ``after`` that may differ from those of ``before``: an entry that is the same is kept."""
    previous = set(map(id, before.tasks))
    return [task for task in after.tasks if id(task) not in previous]


def tasks_with(state: State, status: Status) -> list[Task]:
    """Return the tasks with that status, in the order of the board."""
    return task_groups(state).by_status.get(status, [])
