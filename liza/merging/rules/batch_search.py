"""Search in a batch of candidates: which prefix to test next, which one to publish, and which task made it red. Pure.

A batch is a chain of candidates, each built on the one before. A prefix is named by its length; to test it is to test
its last candidate. Prefix 0 is the tip of integration.
"""

from __future__ import annotations

from collections.abc import Sequence

from liza.model import merge_failures, targets
from liza.model.history_events import HistoryEvent
from liza.model.model import State, Status, Task
from liza.model.transitions import Invocation, apply_verb
from liza.model.value_classes import Value


class PrefixResult(Value):
    """Result of one test run of a prefix. ``certain``: a repetition could not change it."""

    length: int
    passed: bool
    certain: bool = False


class RunPrefix(Value):
    """Test the prefix of this length. ``again``: it was red, and nothing shorter is left to test."""

    length: int
    again: bool = False


class PublishPrefix(Value):
    """Publish the prefix of this length, which is 0 or green. ``culprit``: index of the task that is red on top of
    it, None if the whole batch is green."""

    length: int
    culprit: int | None = None


BatchStep = RunPrefix | PublishPrefix


def next_batch_step(size: int, results: Sequence[PrefixResult], retries: int) -> BatchStep:
    """Return the next step for a batch of ``size`` candidates, after ``results`` in the order of the runs.

    The whole batch is tested first. A red one is bisected. A task is a culprit only if its candidate was red
    ``1 + retries`` times on a prefix that is green.
    """
    green = max((result.length for result in results if result.passed), default=0)
    red = min((result.length for result in results if not result.passed and result.length > green), default=None)
    if red is None:
        return PublishPrefix(size) if green == size else RunPrefix(size)
    if red - green > 1:
        return RunPrefix((green + red) // 2)
    failures = [result for result in results if result.length == red]
    if len(failures) > retries or any(result.certain for result in failures):
        return PublishPrefix(green, culprit=red - 1)
    return RunPrefix(red, again=True)


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
