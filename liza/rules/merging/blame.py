"""Whether a task is to blame for red gates, or its target branch is red without it. Pure."""

from __future__ import annotations

from liza.rules.history_events import HistoryEvent
from liza.rules.merging import merge_failures, targets
from liza.rules.model import State, Status, Task
from liza.rules.transitions import Invocation, apply_verb

E = HistoryEvent


def last_blamed(state: State, branch: str) -> Task | None:
    """Return the task that was blamed last for red gates, if nothing was merged into the branch since; else None.

    Then the cause may be outside of all tasks: the branch is tested alone before another one is blamed. Tasks in the
    archive do not count.
    """
    tasks = [task for task in state.tasks if targets.target_branch(state, task) == branch]
    blames = [(event.time, index) for index, task in enumerate(tasks) for event in merge_failures.find_blames(task)]
    if not blames:
        return None
    time, index = max(blames)
    merges = [event.time for task in tasks for event in task.history if event.event == E.MERGE]
    if branch == state.config.integration_branch:
        merges += [event.time for task in state.tasks for event in task.history if event.event == E.LAND]
    return None if max(merges, default=time) > time else tasks[index]


def clear_blame(state: State, branch: str, invocation: Invocation) -> State:
    """Return the board after the branch proved red without any task: the task that was blamed last is APPROVED again.

    If its coder has begun to fix it, or it is BLOCKED, it stays as it is; its failure does not count any more, and its
    coder may submit the same commit again.
    """
    task = last_blamed(state, branch)
    if task is None or merge_failures.is_conflict(merge_failures.last_failure(task)):
        return state
    if task.status in (Status.CLAIMED, Status.BLOCKED):
        return state.with_task(apply_verb(task, E.MERGE_CLEARED, invocation))
    if task.status is not Status.INTEGRATION_FAILED or task.reservation is not None:
        return state
    verdicts = [event for event in task.history if event.event == E.APPROVE]
    if not verdicts or verdicts[-1].commit != task.review_commit:
        return state
    return state.with_task(apply_verb(task, E.MERGE_CLEARED, invocation, approved_by=verdicts[-1].agent))
