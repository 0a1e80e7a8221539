"""ready: the run proves who it is, is shown its brief, and the supervisor sees that it was read."""

from __future__ import annotations

from collections.abc import Sequence

from liza.crew.caller import RunCaller, identify_run, require_task
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.programs.messages import inbox
from liza.rules.errors import NotOwner, Refused
from liza.rules.model import State
from liza.rules.paths import role_of
from liza.rules.tasks import claims, planning, reviews


def ready(crew: Crew) -> Result:
    """The brief of this run, once its identity holds: agent known, lease alive, task its own, worktree there.

    Raises NotYours, Refused: the one thing that is wrong.
    """
    caller = identify_run(crew)
    state = crew.board.read()
    if caller.agent not in state.agents:
        raise Refused(f"the board knows no agent {caller.agent}", "liza agents")
    _check_identity(crew, state, caller)
    directory = crew.run_dir(caller.run)
    if directory.exists():
        directory.mark_ready(crew.clock.now(), "liza ready")
    with crew.board.heartbeat(caller.run) as tx:
        tx.state = claims.renew_lease(tx.state, caller.run, crew.clock.now())
    text = directory.read_block() or f"You hold {caller.task} as {caller.run}.\n"
    waiting = inbox.list_pending(crew.paths, caller.agent)
    text += "".join(shown for one in waiting if (shown := inbox.format_messages((one,))) not in text)
    said = {"brief": text, "messages": [one.id for one in waiting]}
    task = state.task(caller.task) if caller.task else None
    return Result("changed", caller.task, task.status.value if task else None, "do what the brief says", said)


def acknowledge_messages(crew: Crew, ids: Sequence[str]) -> None:
    """These messages were shown to the run that says this: only now, so that no crash in between loses one."""
    caller = identify_run(crew)
    inbox.acknowledge(crew.paths, caller.agent, tuple(ids), caller.run, "liza ready", crew.clock.now())


def _check_identity(crew: Crew, state: State, caller: RunCaller) -> None:
    role = role_of(caller.agent)
    if role == "planner":
        planning.require_planner(state, caller.run)
        return
    task_id = require_task(caller)
    if role == "coder":
        task = claims.get_owned_task(state, task_id, caller.run)
        if (
            task.lease_expires is not None
            and task.lease_expires < crew.clock.now()
            and not crew.is_supervised(caller.agent)
        ):
            raise NotOwner(
                f"the lease of {caller.run} on {task_id} has run out. Stop at once", f"liza task show {task_id}"
            )
        slot = task.worktree or ""
        if not crew.paths.slot(slot).is_dir() or crew.worktrees.owner(slot) != (task_id, caller.run):
            raise Refused(f"the worktree {slot} of {task_id} is not laid out for {caller.run}", "liza doctor --fix")
        return
    task = reviews.get_reviewed_task(state, task_id, caller.run)
    head = crew.worktrees.head_commit(caller.agent)
    if head != task.review_commit:
        raise Refused(
            f"the worktree stands at {head[:12]}, and {task.review_commit} is to be reviewed",
            'liza handoff "wrong commit" --next "again"',
        )
