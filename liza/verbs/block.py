"""block: a coder stops and asks questions."""

from __future__ import annotations

from collections.abc import Sequence

from liza.crew.caller import identify_run, require_task
from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.crew.run_end import record_run_result
from liza.rules.tasks import coding


def block(crew: Crew, reason: str, questions: Sequence[str]) -> Result:
    """Set the run's task to BLOCKED until a person or the planner answers. Raises UsageError, NotOwner."""
    caller = identify_run(crew)
    task = require_task(caller)
    with crew.change(caller.run, "block", task) as tx:
        tx.state = coding.block(tx.state, task, caller.run, reason, tuple(questions), crew.clock.now())
    record_run_result(crew, caller.run, "0")
    return make_result(tx.before, tx.state, task, "stop now: the task continues when it has an answer")
