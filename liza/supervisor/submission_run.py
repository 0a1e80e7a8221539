"""submit --merge: review, test and merge one submitted task in this terminal, with no other agent than a reviewer."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from typing import Any

from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.merging.merge import merge
from liza.model.errors import EXIT_ONLY_PERSON, LizaError
from liza.model.model import State, Status
from liza.model.paths import role_of
from liza.model.statuses import describe_task
from liza.model.tested import describe_tested
from liza.model.value_classes import replace
from liza.supervisor import start as crews
from liza.supervisor.crew_options import UpOptions
from liza.supervisor.feed import PrintTimedLine
from liza.tasks.next_steps import with_next_step
from liza.tasks.rules import claims, planning, reviews, strangers, submissions
from liza.tasks.rules.picking import unmet_dependencies
from liza.tasks.submission import find_next_step

_REVIEWERS = UpOptions(planners=0, coders=0, reviewers=1, exit_when_done=True)


def merge_submitted(crew: Crew, task_id: str, programs: Sequence[str], say: PrintTimedLine) -> tuple[Result, int]:
    """Review, test and merge a submitted task; return what happened and the exit code.

    A reviewer of a crew that runs already reviews it. What was approved before is only merged. Raises Refused, Missing,
    UsageError, GitFailed.
    """
    before, code = crew.board.read(), 0
    task = claims.get_task(before, task_id)
    assert task.submission is not None
    if task.status is Status.APPROVED and not unmet_dependencies(before, task):
        say("", f"{task_id} is approved: testing the merge", crew.clock.now())
        _merge(crew, task_id)
    elif any(crew.is_supervised(agent) for agent in before.agents if role_of(agent) == reviews.REVIEWER):
        if _can_continue(crew, before, task_id):
            say("", f"a reviewer of the crew reviews {task_id}: waiting", crew.clock.now())
        _wait(crew, task_id)
    elif planning.can_continue(planning.without_others(before, task_id), frozenset({reviews.REVIEWER})):
        again = f"{submissions.submit_command(task.submission)} --merge"
        code = crews.up(crew, replace(_REVIEWERS, programs=_choose_reviewer(programs), only=task_id, again=again), say)
    return _conclude(crew, before, task_id, code)


def _merge(crew: Crew, task_id: str) -> None:
    """Merge an approved task. A failure that is recorded on the task is told with its state. Raises LizaError."""
    try:
        merge(crew, task_id)
    except LizaError:
        task = claims.get_task(crew.board.read(), task_id)
        if task.set_aside is None and task.merge_hold is None and not strangers.lacks_permission(task):
            raise


def _choose_reviewer(words: Sequence[str]) -> dict[str, str]:
    """Return the programs of ``words``. One without a role is the reviewer's: it is not remembered for coders."""
    for_all, by_name = crews.parse_programs(words)
    return ({} if for_all is None else {reviews.REVIEWER: for_all}) | by_name


def _can_continue(crew: Crew, state: State, task_id: str) -> bool:
    """Return whether the running supervisors can go on with the task, or with one that it depends on."""
    roles = frozenset(role_of(agent) for agent in state.agents if crew.is_supervised(agent))
    return planning.can_continue(planning.without_others(state, task_id), roles)


def _wait(crew: Crew, task_id: str) -> None:
    """Wait until the crew has merged the task, or only a person can go on with it."""
    changes: queue.Queue[Any] = queue.Queue()
    with crew.board.watch() as watch:
        watch.subscribe(changes)
        while _can_continue(crew, crew.board.read(), task_id):
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
    message = f"{task_id} is approved" if task.status is Status.APPROVED else describe_task(task_id, task.status)
    message += f": {reason}" if reason else ""
    return with_next_step(replace(result, message=message), find_next_step(crew, after, task)), code or EXIT_ONLY_PERSON
