"""Claims of tasks: reserve, confirm, undo, resume, stop, release. The lease of a claim is in ``leases``.

A claim has two phases. ``reserve`` writes a reservation with a new run (the fencing token); the caller then creates the
worktree, which may fail or take long; ``confirm`` makes the task CLAIMED.
"""

from __future__ import annotations

from datetime import datetime

from liza.model.errors import NotOwner, Refused, UnknownId
from liza.model.history_events import FRAMING_EVENTS, HistoryEvent
from liza.model.model import Agent, ProcessIdentity, Reservation, State, Status, Task
from liza.model.paths import agent_of, role_of, run_id
from liza.model.paths import check_task_id as checked_id
from liza.model.session_ends import OUTCOME_RULES, Fault
from liza.model.setting_limits import lease_expiry
from liza.model.statuses import AgentStatus, describe_task
from liza.model.transitions import Invocation, apply_verb, has_done
from liza.model.value_classes import Value, replace
from liza.tasks.rules.picking import Evidence, claim_obstacle, max_tries, occupation
from liza.text.formats import did_you_mean

_BLAMELESS_EVENTS = frozenset(rule.event for rule in OUTCOME_RULES.values() if rule.fault is Fault.NONE)

_CYCLE_EVENTS = frozenset({HistoryEvent.CONTEXT_FULL, HistoryEvent.TOO_OLD})


class Claimant(Value):
    """The agent that claims, and the process that does it on its behalf."""

    agent: str
    process: ProcessIdentity


def get_task(state: State, task_id: str) -> Task:
    """Return the task with that id. Raises UnknownId, which names up to 8 existing ids."""
    task = state.task(task_id)
    if task is None:
        checked_id(task_id)
        ids = [task.id for task in state.tasks]
        existing = f"(there are: {', '.join(ids[:8]) or 'none'})" + did_you_mean(task_id, ids)
        raise UnknownId(f"there is no task {task_id!r} on the board {existing}", "liza task list")
    return task


def get_owned_task(state: State, task_id: str, run: str) -> Task:
    """Return the task if ``run`` owns it (fencing check). Raises NotOwner.

    The run of a takeover owns it only when its claim is confirmed.
    """
    task = get_task(state, task_id)
    if task.status is not Status.CLAIMED or task.run != run or task.reservation is not None:
        actual = f"it is {task.status}" + (f" under {task.run}" if task.run else "")
        raise NotOwner(
            f"You no longer own this task: {run} asks for {task_id}, and {actual}. Stop at once",
            f"liza task show {task_id}",
        )
    return task


def ensure_agent(state: State, agent: str, host: str | None = None) -> State:
    """Return the board with ``agent`` on it; unchanged if it is there already. ``host``: where it works from now on."""
    record = state.agents.get(agent, Agent(role=role_of(agent), status=AgentStatus.OFFLINE.value))
    record = record if host is None or record.host == host else replace(record, host=host)
    return state if state.agents.get(agent) is record else state.with_agent(agent, record)


def allocate_run(state: State, agent: str) -> tuple[State, str]:
    """Increment the agent's run counter; return the board and the id of the new run.

    Each run is a new session: nothing of its context window is known to be used.
    """
    record = ensure_agent(state, agent).agents[agent]
    run = run_id(agent, record.runs + 1)
    return state.with_agent(agent, replace(record, runs=record.runs + 1, context_percent=0)), run


def reserve(
    state: State, task_id: str, claimant: Claimant, slot: str, now: datetime, evidence: Evidence
) -> tuple[State, str]:
    """Phase one of a claim: record the process that creates the worktree. Raises Refused.

    From here on every verb of an owner with an expired lease is refused, because the task has a new run.
    """
    task = get_task(state, task_id)
    why = claim_obstacle(state, task, claimant.agent, now, evidence)
    if why:
        raise Refused(f"{claimant.agent} cannot claim {task_id}: {why}", f"liza task show {task_id}")
    busy = occupation(state, claimant.agent)
    if busy:
        raise Refused(f"{claimant.agent} is busy with {busy}", f"liza agents {claimant.agent}")
    state, run = allocate_run(state, claimant.agent)
    state = _count_tries(state, claimant.agent, 1)
    reservation = Reservation(
        agent=claimant.agent,
        run=run,
        slot=slot,
        host=claimant.process.host,
        boot=claimant.process.boot,
        pid=claimant.process.pid,
        start=claimant.process.start,
        expires=lease_expiry(state.config, now),
        previous_run=task.run,
    )
    fence = run if task.status is Status.CLAIMED else task.run
    return state.with_task(replace(task, reservation=reservation, run=fence)), run


def takeover_reason(state: State, task: Task, agent: str, evidence: Evidence) -> str | None:
    """Return from whom ``agent`` takes a claimable task over, and why that is allowed; None if it was no other's."""
    former = task.assigned_to
    if former in (None, agent):
        return None
    if task.status is Status.CLAIMED:
        since = f" at {task.lease_expires:%Y-%m-%d %H:%M:%SZ}" if task.lease_expires else ""
        why = f"its lease expired{since}, no supervisor of {former} runs, and no session of it lives"
        if task.run in evidence.lost:
            why = f"the host of {former} is lost, and its session there has ended"
    elif former in task.failed_by:
        why = f"{former} failed it"
    elif former in evidence.offline:
        why = f"no supervisor of {former} runs"
    elif busy := occupation(state, former):
        why = f"{former} is busy with {busy}"
    else:
        why = f"{former} did not fix it within config.lease_duration"
    return f"taken over from {former}: {why}"


def get_reservation(task: Task, run: str) -> Reservation:
    """Return the reservation of ``task`` if ``run`` still holds it. Raises Refused."""
    reservation = task.reservation
    if reservation is None or reservation.run != run:
        raise Refused(f"{run} no longer holds the reservation of {task.id}", f"liza task show {task.id}")
    return reservation


def confirm(state: State, task_id: str, run: str, base: str, now: datetime, evidence: Evidence) -> State:
    """Phase two of a claim: make the task CLAIMED. Raises Refused.

    The reservation must still belong to ``run``, and every condition of a claim is checked again: the board may have
    changed since phase one.
    """
    task = get_task(state, task_id)
    if has_done(task, HistoryEvent.CLAIM, run):
        return state
    reservation = get_reservation(task, run)
    open_task = _unreserved(task)
    why = claim_obstacle(state, open_task, reservation.agent, now, evidence, is_reserved=True)
    if why:
        raise Refused(f"{reservation.agent} cannot claim {task_id} any more: {why}", f"liza task show {task_id}")
    invocation = Invocation(now=now, by=reservation.agent, run=run, commit=base)
    claimed = apply_verb(
        open_task,
        HistoryEvent.CLAIM,
        invocation,
        assigned_to=reservation.agent,
        run=run,
        worktree=reservation.slot,
        base_commit=task.base_commit or base,
        lease_expires=lease_expiry(state.config, now),
        iteration=task.iteration + 1,
        integration_fix=task.integration_fix or task.status is Status.INTEGRATION_FAILED,
        handoff_pending=False,
    )
    return state.with_task(claimed)


def undo_reservation(state: State, task_id: str, run: str) -> State:
    """Remove the reservation of ``run`` and restore the run of the previous owner; unchanged without a reservation."""
    task = state.task(task_id)
    if task is None or task.reservation is None or task.reservation.run != run:
        return state
    return state.with_task(_unreserved(task))


def _unreserved(task: Task) -> Task:
    reservation = task.reservation
    if reservation is None:
        return task
    return replace(task, reservation=None, run=reservation.previous_run if task.run == reservation.run else task.run)


def is_last_end_blameless(state: State, task: Task) -> bool:
    """Return whether the last session ended without its fault. The next session then continues the same try.

    A hand-off after a commit is no fault. A second session in a row whose context window was full, or that was too old,
    is a try: such sessions would otherwise go on for ever. So is a hand-off beyond as many as there may be tries.
    """
    ends = _last_ends(task, 2)
    if len(ends) == 2 and _CYCLE_EVENTS.issuperset(ends):
        return False
    if task.history and task.history[-1].event in _BLAMELESS_EVENTS:
        return True
    handoffs = sum(event.event == HistoryEvent.HANDOFF for event in task.history)
    has_handed_off = has_done(task, HistoryEvent.HANDOFF, task.run) and task.idle_sessions == 0
    return has_handed_off and handoffs <= max_tries(state, task)


def _last_ends(task: Task, count: int) -> list[str]:
    return [event.event for event in task.history if event.event in FRAMING_EVENTS][-count:]


def resume(state: State, task_id: str, run: str, now: datetime) -> tuple[State, str]:
    """Start the next run on the same claim. It counts as a try unless the last session ended without its fault.

    Raises NotOwner.
    """
    task = get_owned_task(state, task_id, run)
    agent = agent_of(run)
    state, fresh = allocate_run(state, agent)
    tries = 0 if is_last_end_blameless(state, task) else 1
    resumed = apply_verb(
        task,
        HistoryEvent.RESUME,
        Invocation(now=now, by=agent, run=fresh),
        run=fresh,
        lease_expires=lease_expiry(state.config, now),
        iteration=task.iteration + tries,
        handoff_pending=False,
    )
    return _count_tries(state.with_task(resumed), agent, tries), fresh


def _count_tries(state: State, agent: str, tries: int) -> State:
    """Add to the agent's tries. Done together with the run counter, so a reservation that dies is counted in both."""
    record = state.agents[agent]
    return state.with_agent(agent, replace(record, iterations_total=record.iterations_total + tries))


def stop(state: State, task_id: str, run: str, now: datetime) -> State:
    """Stop a session on purpose: the lease ends, the worktree and the coder stay. Raises NotOwner."""
    task = get_task(state, task_id)
    if has_done(task, HistoryEvent.STOP, run):
        return state
    task = get_owned_task(state, task_id, run)
    stopped = apply_verb(
        task,
        HistoryEvent.STOP,
        Invocation(now=now, by=agent_of(run), run=run),
        lease_expires=now,
        handoff_pending=True,
    )
    return state.with_task(stopped)


def fence(state: State, task_id: str, now: datetime) -> State:
    """Remove the run of a CLAIMED task before a person releases it: every verb of that run is refused from here on.

    Raises Refused.
    """
    task = get_task(state, task_id)
    if task.status is not Status.CLAIMED:
        raise Refused(
            f"{describe_task(task_id, task.status)}: only a claimed task can be released", f"liza task show {task_id}"
        )
    return state.with_task(replace(task, run=None, lease_expires=now))


def release(state: State, task_id: str, run: str | None, now: datetime, by: str, why: str | None = None) -> State:
    """Make the task UNCLAIMED. Call it when the session is over and the work is saved. Branch and counters stay.

    ``run``: the run that loses the task; None: it was fenced. Raises Refused if the task is not claimed by it: it was
    closed or claimed again while the session was ended.
    """
    task = get_task(state, task_id)
    if task.status is Status.UNCLAIMED:
        return state
    if task.status is not Status.CLAIMED or task.run != run:
        actual = f"{task.status}" + (f" under {task.run}" if task.run else "")
        raise Refused(f"{task_id} is {actual} now: it is not released", f"liza task show {task_id}")
    freed = apply_verb(
        task,
        HistoryEvent.RELEASE,
        Invocation(now=now, by=by, detail=why),
        assigned_to=None,
        run=None,
        lease_expires=None,
        handoff_pending=False,
        submission=None if task.worktree is None and is_of_crew(task) else task.submission,
    )
    return state.with_task(freed)


def is_of_crew(task: Task) -> bool:
    """Return whether the crew goes on with a released task: its author did not submit it, and no stranger wrote a part
    of it."""
    is_foreign = task.submission is not None and task.submission.is_foreign
    return not is_foreign and all(event.event != HistoryEvent.SUBMIT_WORK for event in task.history)
