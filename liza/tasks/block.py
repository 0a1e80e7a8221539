"""block: a coder stops and asks questions."""

from __future__ import annotations

from typing import Annotated

import msgspec

from liza.crew.caller import identify_run, record_run_result, require_task
from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.model.request_types import Line, Text, WorkerRequest
from liza.tasks import run_commits
from liza.tasks.rules import claims, coding


class BlockRequest(WorkerRequest, frozen=True, kw_only=True):
    """Stop the task with one to three questions for a person."""

    reason: Text
    questions: Annotated[tuple[Line, ...], msgspec.Meta(min_length=1, max_length=3)]


def block(crew: Crew, request: BlockRequest) -> Result:
    """Set the run's task to BLOCKED until a person or the planner answers. Raises UsageError, NotOwner."""
    caller = identify_run(crew)
    task = require_task(caller)
    run_commits.import_work(crew, claims.get_task(crew.board.read(), task))
    with crew.change(caller.run, "block", task) as tx:
        tx.state = coding.block(tx.state, task, caller.run, request.reason, request.questions, crew.clock.now())
    record_run_result(crew, caller.run, "0")
    return make_result(tx.before, tx.state, task, "stop now: the task continues when it has an answer")
