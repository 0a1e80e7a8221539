"""block: a coder stops and asks questions. answer: find the questions of blocked tasks."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from liza.crew.caller import identify_run, record_run_result, require_task
from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.model.errors import Refused
from liza.model.model import Clock, Status, Task
from liza.model.paths import check_task_id as checked_id
from liza.model.statuses import describe_task
from liza.model.value_classes import Line, Text, Value, WorkerRequest
from liza.tasks import archive, task_branches
from liza.tasks.rules import claims, coding


class BlockRequest(WorkerRequest, frozen=True, kw_only=True):
    """Stop the task with one to three questions for a person."""

    reason: Text
    questions: Annotated[tuple[Line, ...], msgspec.Meta(min_length=1, max_length=3)]


def block(crew: Crew, request: BlockRequest) -> Result:
    """Set the run's task to BLOCKED until a person or the planner answers. Raises UsageError, NotOwner."""
    caller = identify_run(crew)
    task = require_task(caller)
    task_branches.import_work(crew.worktrees, claims.get_task(crew.board.read(), task))
    with crew.change(caller.run, "block", task) as tx:
        tx.state = coding.block(tx.state, task, caller.run, request.reason, request.questions, crew.clock.now())
    record_run_result(crew, caller.run, "0")
    return make_result(tx.before, tx.state, task, "stop now: the task continues when it has an answer")


class OpenQuestion(Value):
    """A BLOCKED task, why it is blocked, what it asks, and since when."""

    task: str
    description: str
    reason: str
    questions: tuple[str, ...]
    since: datetime | None
    seconds: int | None
    next: str


def find_open_questions(crew: Crew, task_id: str | None = None) -> list[OpenQuestion]:
    """Return the questions that wait for a person, the oldest first; with ``task_id``, those of that task.

    Raises UnknownId, Refused if that task has no question.
    """
    state = crew.board.read()
    if task_id is not None:
        archive.refuse_archived(crew.board, state, [checked_id(task_id)])
        task = claims.get_task(state, task_id)
        if task.status is not Status.BLOCKED:
            raise Refused(f"{describe_task(task.id, task.status)}: it has no question", f"liza task show {task.id}")
        return [_open_question(crew.clock, task)]
    questions = [_open_question(crew.clock, task) for task in state.tasks if task.status is Status.BLOCKED]
    return sorted(questions, key=lambda question: -(question.seconds or 0))


def _open_question(clock: Clock, task: Task) -> OpenQuestion:
    since = task.history[-1].time if task.history else None
    seconds = None if since is None else max(0, int((clock.now() - since).total_seconds()))
    questions = task.blocked_questions or (task.blocked_reason or "",)
    step = f'liza answer {task.id} "…"'
    return OpenQuestion(task.id, task.description, task.blocked_reason or "", questions, since, seconds, step)
