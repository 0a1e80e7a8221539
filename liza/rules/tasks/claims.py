"""Taking a task and giving it up: reserve, confirm, undo, resume, stop, release."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from liza.rules.errors import NotOwner, Refused, UnknownId
from liza.rules.model import Agent, ProcessIdentity, Reservation, State, Status, Task
from liza.rules.paths import agent_of, role_of, run_id
from liza.rules.paths import check_task_id as checked_id
from liza.rules.suggestions import did_you_mean
from liza.rules.tasks.picking import Evidence, claim_obstacle, occupation
from liza.rules.transitions import Invocation, apply_verb, has_done

STOP = "stop"
HELD_UP = "held up"
"""What a task's history says of a session that the board, its lock or the disk kept from its end."""
QUOTA = "quota"
"""And of one that a limit of use kept from its model."""
UNUSABLE = "unusable"
"""And of one whose program nobody can use before a person did something."""
UNANSWERED = "unanswered"
"""And of one whose model gave no answer that could be used: nothing for too long, errors only, or half an answer."""
_BLAMELESS_ENDS = (STOP, HELD_UP, QUOTA, UNUSABLE, UNANSWERED)
_SESSION_ENDS = ("claim", "crash", "ended", "handoff", "reject", *_BLAMELESS_ENDS)
UNCOUNTED_ENDS = (HELD_UP, QUOTA, UNUSABLE, UNANSWERED)
"""Ends that count neither as a crash nor as a session that moved nothing."""


@dataclass(frozen=True)
class Claimant:
    """Who takes: the agent, and the process that does it for the agent."""

    agent: str
    process: ProcessIdentity


def get_task(state: State, task_id: str) -> Task:
    """The task of that id. Raises UnknownId, naming some that there are."""
    task = state.task(task_id)
    if task is None:
        checked_id(task_id)
        ids = [task.id for task in state.tasks]
        known = f"(there are: {', '.join(ids[:8]) or 'none'})" + did_you_mean(task_id, ids)
        raise UnknownId(f"there is no task {task_id!r} on the board {known}", "liza task list")
    return task


def get_owned_task(state: State, task_id: str, run: str) -> Task:
    """The task if ``run`` holds it now: the fence. Raises NotYours."""
    task = get_task(state, task_id)
    if task.status is not Status.CLAIMED or task.run != run:
        found = f"it is {task.status}" + (f" under {task.run}" if task.run else "")
        raise NotOwner(
            f"You no longer own this task: {run} asks for {task_id}, and {found}. Stop at once",
            f"liza task show {task_id}",
        )
    return task


def ensure_agent(state: State, agent: str) -> State:
    """The board with ``agent`` on it, unchanged where it is already."""
    if agent in state.agents:
        return state
    return state.with_agent(agent, Agent(role=role_of(agent), status="OFFLINE"))


def allocate_run(state: State, agent: str) -> tuple[State, str]:
    """Count the agent's runs up by one; the new run's name."""
    known = ensure_agent(state, agent).agents[agent]
    run = run_id(agent, known.runs + 1)
    return state.with_agent(agent, replace(known, runs=known.runs + 1)), run


def lease_expiry(state: State, now: datetime) -> datetime:
    """Until when a lease taken at ``now`` runs."""
    return now + timedelta(seconds=state.config.lease_duration)


def reserve(
    state: State, task_id: str, taker: Claimant, slot: str, now: datetime, evidence: Evidence
) -> tuple[State, str]:
    """Phase one: the board names who is making the worktree; a lapsed owner is fenced off here. Raises Refused."""
    task = get_task(state, task_id)
    why = claim_obstacle(state, task, taker.agent, now, evidence)
    if why:
        raise Refused(f"{taker.agent} cannot claim {task_id}: {why}", f"liza task show {task_id}")
    busy = occupation(state, taker.agent)
    if busy:
        raise Refused(f"{taker.agent} is busy with {busy}", f"liza agents {taker.agent}")
    state, run = allocate_run(state, taker.agent)
    state = _count_tries(state, taker.agent, 1)
    reservation = Reservation(
        agent=taker.agent,
        run=run,
        slot=slot,
        host=taker.process.host,
        boot=taker.process.boot,
        pid=taker.process.pid,
        start=taker.process.start,
        expires=lease_expiry(state, now),
        previous_run=task.run,
    )
    fence = run if task.status is Status.CLAIMED else task.run
    return state.with_task(replace(task, reservation=reservation, run=fence)), run


def get_reservation(task: Task, run: str) -> Reservation:
    """The reservation of ``task`` if it still bears ``run``. Raises Refused."""
    held = task.reservation
    if held is None or held.run != run:
        raise Refused(f"the reservation of {task.id} no longer bears {run}", f"liza task show {task.id}")
    return held


def confirm(state: State, task_id: str, run: str, base: str, now: datetime, evidence: Evidence) -> State:
    """Phase two: the reservation still bears ``run`` and every condition holds, so it is CLAIMED. Raises Refused."""
    task = get_task(state, task_id)
    if has_done(task, "claim", run):
        return state
    held = get_reservation(task, run)
    open_task = _unreserved(task)
    why = claim_obstacle(state, open_task, held.agent, now, evidence)
    if why:
        raise Refused(f"{held.agent} cannot claim {task_id} any more: {why}", f"liza task show {task_id}")
    said = Invocation(now=now, by=held.agent, run=run, commit=base)
    claimed = apply_verb(
        open_task,
        "claim",
        said,
        assigned_to=held.agent,
        run=run,
        worktree=held.slot,
        base_commit=task.base_commit or base,
        lease_expires=lease_expiry(state, now),
        iteration=task.iteration + 1,
        integration_fix=task.integration_fix or task.status is Status.INTEGRATION_FAILED,
        handoff_pending=False,
    )
    return state.with_task(claimed)


def undo_reservation(state: State, task_id: str, run: str) -> State:
    """Take back what bears ``run``: the reservation, and the fence that it put before a lapsed owner."""
    task = state.task(task_id)
    if task is None or task.reservation is None or task.reservation.run != run:
        return state
    return state.with_task(_unreserved(task))


def _unreserved(task: Task) -> Task:
    held = task.reservation
    if held is None:
        return task
    return replace(task, reservation=None, run=held.previous_run if task.run == held.run else task.run)


def is_last_end_blameless(task: Task) -> bool:
    """Whether the last session was stopped on purpose or held up: the next one goes on with the same try."""
    return bool(task.history) and task.history[-1].event in _BLAMELESS_ENDS


def is_continuation(task: Task) -> bool:
    """Whether the session that begins now goes on with what the last one was kept from by nobody's fault."""
    ends = [one.event for one in task.history if one.event in _SESSION_ENDS]
    if ends[-2:] == [UNANSWERED, UNANSWERED]:
        # Some servers fail on one conversation, such as one that has become too long for them.
        return False
    return bool(ends) and ends[-1] in _BLAMELESS_ENDS


def resume(state: State, task_id: str, run: str, now: datetime) -> tuple[State, str]:
    """The next session on the same claim takes the next run. It counts as a try, unless the last one's end was nobody's
    fault.

    Raises NotYours.
    """
    task = get_owned_task(state, task_id, run)
    agent = agent_of(run)
    state, fresh = allocate_run(state, agent)
    tries = 0 if is_last_end_blameless(task) else 1
    resumed = apply_verb(
        task,
        "resume",
        Invocation(now=now, by=agent, run=fresh),
        run=fresh,
        lease_expires=lease_expiry(state, now),
        iteration=task.iteration + tries,
        handoff_pending=False,
    )
    return _count_tries(state.with_task(resumed), agent, tries), fresh


def _count_tries(state: State, agent: str, tries: int) -> State:
    """Count tries of an agent as they begin; with the run, so that a reservation that dies leaves both counted."""
    known = state.agents[agent]
    return state.with_agent(agent, replace(known, iterations_total=known.iterations_total + tries))


def stop(state: State, task_id: str, run: str, now: datetime) -> State:
    """A session stopped on purpose: the lease ends, the worktree stays, the same coder goes on. Raises NotYours."""
    task = get_task(state, task_id)
    if has_done(task, STOP, run):
        return state
    task = get_owned_task(state, task_id, run)
    stopped = apply_verb(
        task, STOP, Invocation(now=now, by=agent_of(run), run=run), lease_expires=now, handoff_pending=True
    )
    return state.with_task(stopped)


def fence(state: State, task_id: str, now: datetime) -> State:
    """A person is about to take the task away: from here on every verb of its run is refused. Raises Refused."""
    task = get_task(state, task_id)
    if task.status is not Status.CLAIMED:
        raise Refused(f"{task_id} is {task.status}: only a CLAIMED task can be released", f"liza task show {task_id}")
    return state.with_task(replace(task, run=None, lease_expires=now))


def release(state: State, task_id: str, now: datetime, by: str) -> State:
    """Back to UNCLAIMED, once the session is over and the work is saved. The branch and the counters stay."""
    task = get_task(state, task_id)
    if task.status is Status.UNCLAIMED:
        return state
    freed = apply_verb(
        task,
        "release",
        Invocation(now=now, by=by),
        assigned_to=None,
        run=None,
        lease_expires=None,
        handoff_pending=False,
    )
    return state.with_task(freed)


def renew_lease(state: State, run: str, now: datetime) -> State:
    """Extend whatever lease ``run`` holds, and the agent's own. Raises NotYours where it holds none."""
    agent = agent_of(run)
    known = ensure_agent(state, agent).agents[agent]
    until = lease_expiry(state, now)
    renewed = state.with_agent(agent, replace(known, heartbeat=now, lease_expires=until))
    for task in state.tasks:
        if task.run == run and task.status is Status.CLAIMED:
            return renewed.with_task(replace(task, lease_expires=max(until, task.lease_expires or until)))
        if task.review_run == run:
            return renewed.with_task(replace(task, review_lease_expires=until))
    if state.planning.run == run:
        return replace(renewed, planning=replace(state.planning, lease_expires=until))
    raise NotOwner(f"{run} holds no task, no review and no planning", f"liza agents {agent}")
