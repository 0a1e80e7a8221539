"""submit --merge: review, test and merge one submitted task in this terminal, with no other agent than a reviewer."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from typing import Any

from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.merging.merge import merge
from liza.model.errors import EXIT_ONLY_PERSON
from liza.model.model import State, Status, Task
from liza.model.paths import role_of
from liza.model.statuses import describe_task
from liza.model.tested import describe_tested
from liza.model.value_classes import replace
from liza.supervisor import start as crews
from liza.supervisor.crew_options import UpOptions
from liza.supervisor.feed import PrintTimedLine
from liza.tasks.next_steps import with_next_step
from liza.tasks.rules import claims, reviews, submissions
from liza.tasks.rules.picking import unmet_dependencies, waits_only_for_verdict
from liza.tasks.submission import find_next_step

_REVIEWERS = UpOptions(planners=0, coders=0, reviewers=1, exit_when_done=True)


def merge_submitted(crew: Crew, task_id: str, programs: Sequence[str], say: PrintTimedLine) -> tuple[Result, int]:
    """Review, test and merge a submitted task; return what happened and the exit code.

    A reviewer of a crew that runs already reviews it. What was approved before is only merged. Raises Refused, Missing,
    UsageError, GitFailed.
    """
    before, code = crew.board.read(), 0
    task = claims.get_task(before, task_id)
    if task.status is Status.APPROVED and not unmet_dependencies(before, task):
        say("", f"{task_id} is approved: testing the merge", crew.clock.now())
        merge(crew, task_id)
    elif _is_under_way(before, task):
        if any(crew.is_supervised(agent) for agent in before.agents if role_of(agent) == reviews.REVIEWER):
            say("", f"a reviewer of the crew reviews {task_id}: waiting", crew.clock.now())
            _wait(crew, task_id)
        else:
            code = crews.up(crew, replace(_REVIEWERS, programs=_choose_reviewer(programs), task=task_id), say)
    return _conclude(crew, before, task_id, code)


def _choose_reviewer(words: Sequence[str]) -> dict[str, str]:
    """Return the programs of ``words``. One without a role is the reviewer's: it is not remembered for coders."""
    for_all, by_name = crews.parse_programs(words)
    return ({} if for_all is None else {reviews.REVIEWER: for_all}) | by_name


def _is_under_way(state: State, task: Task) -> bool:
    """Return whether a reviewer or a merger can go on with a task."""
    if task.status is Status.READY_FOR_REVIEW:
        return not waits_only_for_verdict(task)
    return task.status is Status.APPROVED and task.merge_hold is None


def _wait(crew: Crew, task_id: str) -> None:
    """Wait until the crew has merged the task, or only a person can go on with it."""
    changes: queue.Queue[Any] = queue.Queue()
    with crew.board.watch() as watch:
        watch.subscribe(changes)
        while True:
            state = crew.board.read()
            task = state.task(task_id)
            if task is None or not _is_under_way(state, task):
                return
            changes.get()


def _conclude(crew: Crew, before: State, task_id: str, code: int) -> tuple[Result, int]:
    after = crew.board.read()
    task = claims.get_task(after, task_id)
    result = make_result(before, after, task_id, f"liza task show {task_id}", merge_commit=task.merge_commit)
    if task.status is Status.MERGED:
        how = describe_tested(task.tested, task.remarks)
        message = (
            f"{task_id} is merged into {after.config.integration_branch} as {(task.merge_commit or '')[:12]}, {how}"
        )
        return replace(result, message=message, next="liza land --merge"), 0
    reason = submissions.describe_cause(task)
    message = describe_task(task_id, task.status) + (f": {reason}" if reason else "")
    return with_next_step(replace(result, message=message), find_next_step(crew, after, task)), code or EXIT_ONLY_PERSON
