"""task permit: permit that the tests of a commit run that a stranger wrote, in a box without network."""

from __future__ import annotations

from liza.box import support
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.model.model import Status, Task
from liza.model.narration import verdict_command
from liza.model.value_classes import replace
from liza.tasks.rules import claims, strangers


def permit(crew: Crew, task_id: str, commit: str) -> Result:
    """Permit that the tests of exactly this commit run. A later commit needs another permission.

    Raises Refused, UsageError.
    """
    by = require_person(crew, planner=False)
    with crew.change(by, "permit", task_id) as tx:
        tx.state = tx.state.with_task(strangers.permit(claims.get_task(tx.state, task_id), commit))
    task = claims.get_task(tx.state, task_id)
    step = f"liza merge {task_id}" if task.status is Status.APPROVED else verdict_command(task_id)
    result = make_result(tx.before, tx.state, task_id, step, commit=commit)
    message = f"the tests of {task_id} may run at {commit[:12]}, in a box without network and logins"
    return replace(result, message=message, remarks=describe_missing_box())


def describe_missing_box() -> tuple[str, ...]:
    """Return a sentence if this machine makes no box, in which alone the tests of strangers run."""
    machine = support.find_support()
    if machine.works:
        return ()
    return (f"{strangers.NO_BOX}: {machine.cause}; next: {machine.remedy or 'liza doctor'}",)


def describe_stranger(task: Task) -> tuple[str, ...]:
    """Return remarks about foreign work; none for other work."""
    if not strangers.is_foreign(task):
        return ()
    return "a stranger wrote it: nothing of it runs before you permit it", *describe_missing_box()
