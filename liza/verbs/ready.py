"""ready: check the identity of a run, show its brief, and record for the supervisor that it was read."""

from __future__ import annotations

from collections.abc import Sequence

from liza.crew.caller import RunCaller, identify_run, require_task
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.programs.messages import inbox
from liza.programs.session.run_directory import ReadyEvidence
from liza.rules.errors import NotOwner, Refused
from liza.rules.model import State
from liza.rules.paths import role_of
from liza.rules.sessions.message_rules import MessageChannel, list_quotable
from liza.rules.tasks import claims, planning, reviews


def ready(crew: Crew) -> Result:
    """Return the brief of this run after these checks: agent known, task its own, lease valid, worktree present.

    Raises NotOwner or Refused for the first check that fails.
    """
    caller = identify_run(crew)
    state = crew.board.read()
    if caller.agent not in state.agents:
        raise Refused(f"there is no agent {caller.agent} on the board", "liza agents")
    _check_identity(crew, state, caller)
    directory = crew.run_dir(caller.run)
    if directory.exists():
        directory.mark_ready(crew.clock.now(), ReadyEvidence.LIZA_READY)
    with crew.board.heartbeat(caller.run) as tx:
        tx.state = claims.renew_lease(tx.state, caller.run, crew.clock.now())
    text = directory.read_block() or _compose_by_hand(crew, state, caller)
    waiting = inbox.list_pending(crew.paths, caller.agent)
    text += "".join(
        shown for message in list_quotable(waiting) if (shown := inbox.format_messages((message,))) not in text
    )
    details = {"brief": text, "messages": [message.id for message in waiting]}
    task = state.task(caller.task) if caller.task else None
    return Result("changed", caller.task, task.status.value if task else None, "do what the brief says", details)


def _compose_by_hand(crew: Crew, state: State, caller: RunCaller) -> str:
    """Compose the brief of a claim that a person or a script works on: no supervisor has written one."""
    # A session's brief was written at its start; only work by hand needs these.
    from liza.programs.brief.brief_writer import compose_brief
    from liza.rules.owned_work import find_current_work
    from liza.worker.brief_facts import gather_brief_facts

    work = find_current_work(state, caller.agent)
    if work is None or work.run != caller.run:
        raise NotOwner(f"{caller.run} holds no work. Stop at once", f"liza agents {caller.agent}")
    return compose_brief(gather_brief_facts(crew, state, work, crew.run_dir(caller.run))).block


def acknowledge_messages(crew: Crew, ids: Sequence[str]) -> None:
    """Acknowledge messages after they were shown to the calling run: a crash before that must not lose one."""
    caller = identify_run(crew)
    now = crew.clock.now()
    inbox.acknowledge(crew.paths, caller.agent, tuple(ids), caller.run, "liza ready", now, MessageChannel.COMMAND)


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
            # Work by hand has no session that must stop: no other run has the task, so its lease is renewed.
            and crew.run_dir(caller.run).exists()
        ):
            raise NotOwner(
                f"the lease of {caller.run} on {task_id} has expired. Stop at once", f"liza task show {task_id}"
            )
        slot = task.worktree or ""
        if not crew.paths.slot(slot).is_dir() or crew.slot_owner(slot) != (task_id, caller.run):
            raise Refused(f"the worktree {slot} of {task_id} is not ready for {caller.run}", "liza doctor --fix")
        return
    task = reviews.get_reviewed_task(state, task_id, caller.run)
    head = crew.worktrees.head_commit(caller.agent)
    if head != task.review_commit:
        raise Refused(
            f"the worktree is at {head[:12]}, expected {task.review_commit}, the commit to review",
            'liza handoff "wrong commit" --next "again"',
        )
