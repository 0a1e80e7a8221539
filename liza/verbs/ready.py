"""ready: the run proves who it is, is shown its brief, and the supervisor sees that it was read."""

from __future__ import annotations

from collections.abc import Sequence

from liza.crew.caller import RunCaller, run_caller, task_of
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.programs.messages import inbox
from liza.rules.errors import NotYours, Refused
from liza.rules.model import State
from liza.rules.paths import role_of
from liza.rules.tasks import claims, coding, planning, reviews


def ready(crew: Crew) -> Result:
    """The brief of this run, once its identity holds: agent known, lease alive, task its own, worktree there.

    Raises NotYours, Refused: the one thing that is wrong.
    """
    caller = run_caller(crew)
    state = crew.board.read()
    if caller.agent not in state.agents:
        raise Refused(f"the board knows no agent {caller.agent}", "liza agents")
    _identity_holds(crew, state, caller)
    directory = crew.run_dir(caller.run)
    if directory.exists():
        directory.mark_ready(crew.clock.now(), "liza ready")
    with crew.board.renewal(caller.run) as tx:
        tx.state = claims.renew(tx.state, caller.run, crew.clock.now())
    text = directory.block() or f"You hold {caller.task} as {caller.run}.\n"
    waiting = inbox.pending(crew.paths, caller.agent)
    text += "".join(shown for one in waiting if (shown := inbox.as_text((one,))) not in text)
    said = {"brief": text, "messages": [one.id for one in waiting]}
    task = state.task(caller.task) if caller.task else None
    return Result("changed", caller.task, task.status.value if task else None, "do what the brief says", said)


def read(crew: Crew, ids: Sequence[str]) -> None:
    """These messages were shown to the run that says this: only now, so that no crash in between loses one."""
    caller = run_caller(crew)
    inbox.acknowledge(crew.paths, caller.agent, tuple(ids), caller.run, "liza ready", crew.clock.now())


def _identity_holds(crew: Crew, state: State, caller: RunCaller) -> None:
    role = role_of(caller.agent)
    if role == "planner":
        planning.planned(state, caller.run)
        return
    task_id = task_of(caller)
    if role == "coder":
        task = coding.ready(state, task_id, caller.run)
        if (
            task.lease_expires is not None
            and task.lease_expires < crew.clock.now()
            and not crew.supervised(caller.agent)
        ):
            raise NotYours(
                f"the lease of {caller.run} on {task_id} has run out. Stop at once", f"liza task show {task_id}"
            )
        slot = task.worktree or ""
        if not crew.paths.slot(slot).is_dir() or crew.worktrees.owner(slot) != (task_id, caller.run):
            raise Refused(f"the worktree {slot} of {task_id} is not laid out for {caller.run}", "liza doctor --fix")
        return
    task = reviews.reviewed(state, task_id, caller.run)
    head = crew.worktrees.head(caller.agent)
    if head != task.review_commit:
        raise Refused(
            f"the worktree stands at {head[:12]}, and {task.review_commit} is to be reviewed",
            'liza handoff "wrong commit" --next "again"',
        )
