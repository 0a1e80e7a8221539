"""block: the coder cannot go on and asks."""

from __future__ import annotations

from collections.abc import Sequence

from liza.crew.caller import run_caller, task_of
from liza.crew.crew import Crew
from liza.crew.result import Result, answer
from liza.crew.run_end import said_last
from liza.rules.tasks import coding


def block(crew: Crew, reason: str, questions: Sequence[str]) -> Result:
    """The run's task waits for a person's, or the planner's, answers. Raises Usage, NotYours."""
    caller = run_caller(crew)
    task = task_of(caller)
    with crew.change(caller.run, "block", task) as tx:
        tx.state = coding.block(tx.state, task, caller.run, reason, tuple(questions), crew.clock.now())
    said_last(crew, caller.run, "0")
    return answer(tx.before, tx.state, task, "stop now: somebody answers, and the task goes on later")
