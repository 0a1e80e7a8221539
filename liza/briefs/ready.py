"""ready: check the identity of a run, show its brief, and record for the supervisor that it was read."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime

from liza.briefs import inbox
from liza.briefs.brief_context import gather_brief_facts
from liza.briefs.brief_writer import compose_brief
from liza.briefs.rules.message_rules import MessageChannel, list_quotable
from liza.crew.caller import RunCaller, identify_run, require_task
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.model.derived import find_current_work, require_planner
from liza.model.errors import LizaError, NotOwner, Refused
from liza.model.model import FailedCheck, State
from liza.model.paths import role_of
from liza.model.statuses import StartupCheck
from liza.programs.session.run_directory import ReadyEvidence, RunDir
from liza.tasks.rules import claims, coding, leases, reviews


def ready(crew: Crew) -> Result:
    """Return the brief of this run after these checks: agent known, task its own, lease valid, worktree present.

    Raises NotOwner or Refused for the first check that fails.
    """
    caller = identify_run(crew)
    state = crew.board.read()
    _check_identity(crew, state, caller)
    directory = crew.run_dir(caller.run)
    has_session = directory.exists()
    if has_session:
        directory.mark_ready(crew.clock.now(), ReadyEvidence.LIZA_READY)
        if crew.authenticated_run is None:  # otherwise this is the environment of the server
            _note_conversation(directory)
    with crew.board.heartbeat(caller.run) as tx:
        tx.state = leases.renew_lease(tx.state, caller.run, crew.clock.now())
    text = (directory.read_block() if has_session else _compose_by_hand(crew, state, caller)) or (
        f"You hold {caller.task} as {caller.run}.\n"
    )
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

    work = find_current_work(state, caller.agent)
    if work is None or work.run != caller.run:
        raise NotOwner(f"{caller.run} holds no work. Stop at once", f"liza agents {caller.agent}")
    return compose_brief(gather_brief_facts(crew, state, work, crew.run_dir(caller.run))).block


def acknowledge_messages(crew: Crew, ids: Sequence[str]) -> None:
    """Acknowledge messages after they were shown to the calling run: a crash before that must not lose one."""
    caller = identify_run(crew)
    now = crew.clock.now()
    inbox.acknowledge(crew.paths, caller.agent, tuple(ids), caller.run, "liza ready", now, MessageChannel.COMMAND)


def _note_conversation(directory: RunDir) -> None:
    """Record the id of the program's conversation: a program without hooks may report it nowhere else.

    Ignored if that fails: without it the next session begins a new conversation.
    """
    with suppress(LizaError, OSError):
        directory.note_conversation(os.environ)


def _check_identity(crew: Crew, state: State, caller: RunCaller) -> None:
    """Make the checks of the caller's role in order. Raises NotOwner or Refused; a session's failure is recorded."""
    for check, expected, verify in _CHECKS[role_of(caller.agent)]:
        try:
            verify(crew, state, caller)
        except Refused as error:
            _record_failed_check(crew, state, caller, (check, expected, error.message))
            raise


def _record_failed_check(crew: Crew, state: State, caller: RunCaller, failure: tuple[StartupCheck, str, str]) -> None:
    """Write the failed check of a session into the hand-off of the task that its run holds: the next brief shows it.

    Work by hand has no session. An error here must not hide the failed check.
    """
    check, expected, actual = failure
    now = crew.clock.now()
    failed = FailedCheck(time=now, run=caller.run, check=check, expected=expected, actual=actual)
    work = find_current_work(state, caller.agent)
    if work is None or work.task is None or work.run != caller.run or not crew.run_dir(caller.run).exists():
        return
    with suppress(LizaError, OSError), crew.change(caller.run, "failed check", work.task) as tx:
        tx.state = coding.note_failed_check(tx.state, work.task, failed)


def _check_agent(crew: Crew, state: State, caller: RunCaller) -> None:
    named = os.environ.get("LIZA_AGENT_ID") if crew.authenticated_run is None else None
    if named not in (None, caller.agent):
        raise Refused(f"LIZA_AGENT_ID is {named}, and the run is {caller.run}", f"export LIZA_AGENT_ID={caller.agent}")
    if caller.agent not in state.agents:
        raise Refused(f"there is no agent {caller.agent} on the board", "liza agents")


def _check_planning(crew: Crew, state: State, caller: RunCaller) -> None:
    require_planner(state, caller.run)


def _check_task(crew: Crew, state: State, caller: RunCaller) -> None:
    claims.get_owned_task(state, require_task(caller), caller.run)


def _check_lease(crew: Crew, state: State, caller: RunCaller) -> None:
    until = _lease_of(state, caller)
    if (
        until is not None
        and until < crew.clock.now()
        and not crew.is_supervised(caller.agent)
        # Work by hand has no session that must stop: no other run has the task, so its lease is renewed.
        and crew.run_dir(caller.run).exists()
    ):
        about, hint = (caller.task, f"liza task show {caller.task}") if caller.task else ("planning", "liza status")
        raise NotOwner(f"the lease of {caller.run} on {about} has expired. Stop at once", hint)


def _lease_of(state: State, caller: RunCaller) -> datetime | None:
    """Return until when the run holds what its role holds. Raises NotOwner."""
    role = role_of(caller.agent)
    if role == "planner":
        require_planner(state, caller.run)
        return state.planning.lease_expires
    if role == "code-reviewer":
        return reviews.get_reviewed_task(state, require_task(caller), caller.run).review_lease_expires
    return claims.get_owned_task(state, require_task(caller), caller.run).lease_expires


def _check_worktree(crew: Crew, state: State, caller: RunCaller) -> None:
    task = claims.get_owned_task(state, require_task(caller), caller.run)
    slot = task.worktree or ""
    if not crew.paths.slot(slot).is_dir() or crew.slot_owner(slot) != (task.id, caller.run):
        raise Refused(f"the worktree {slot} of {task.id} is not ready for {caller.run}", "liza doctor --fix")


def _check_review(crew: Crew, state: State, caller: RunCaller) -> None:
    reviews.get_reviewed_task(state, require_task(caller), caller.run)


def _check_commit(crew: Crew, state: State, caller: RunCaller) -> None:
    task = reviews.get_reviewed_task(state, require_task(caller), caller.run)
    head = crew.worktrees.head_commit(caller.agent)
    if head != task.review_commit:
        raise Refused(
            f"the worktree is at {head[:12]}, expected {task.review_commit}, the commit to review",
            'liza handoff "wrong commit" --next "again"',
        )


_AGENT = (StartupCheck.ENVIRONMENT, "the variables of the session name the run's agent", _check_agent)
_LEASE = (StartupCheck.LEASE, "a lease that has not expired, or a supervisor", _check_lease)
_CHECKS: dict[str, tuple[tuple[StartupCheck, str, Callable[[Crew, State, RunCaller], None]], ...]] = {
    "planner": (_AGENT, (StartupCheck.TASK, "the run has the planning", _check_planning), _LEASE),
    "coder": (
        _AGENT,
        (StartupCheck.TASK, "the run has the task", _check_task),
        _LEASE,
        (StartupCheck.WORKTREE, "the worktree of the task, given to the run", _check_worktree),
    ),
    "code-reviewer": (
        _AGENT,
        (StartupCheck.TASK, "the run has the review", _check_review),
        _LEASE,
        (StartupCheck.COMMIT, "the worktree is at the commit to review", _check_commit),
    ),
}
"""The checks of each role in their order, with what each expects."""
