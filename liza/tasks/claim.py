"""claim: take a task in two phases, so that a claimed task always has its worktree, or take a review; heartbeat.

Claims of dead processes are undone: reservations, slots and links that no task uses.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec

from liza.crew.caller import identify_run, require_person
from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.git import leftovers, slot_records, slot_setup
from liza.git.worktrees import Worktrees
from liza.model.configuration import OverlapRule
from liza.model.derived import held_tasks
from liza.model.errors import GitFailed, LizaError, LockTimeout, Refused, TakenMeanwhile, UsageError
from liza.model.model import Clock, ProcessIdentity, Reservation, State, Status, Task
from liza.model.paths import check_task_id as checked_task_id
from liza.model.paths import host_of_slot, is_task_slot, parse_agent_id, role_of
from liza.model.value_classes import Value, WorkerRequest, replace
from liza.system import crash_points, processes
from liza.system.locks import Lock, last_holder_pid
from liza.tasks import archive, shared_code, task_branches
from liza.tasks.evidence import describe_overlaps, gather_evidence
from liza.tasks.rules import claims, leases, picking, reviews
from liza.tasks.rules.picking import Evidence, Pick
from liza.tasks.task_branches import describe_left_work
from liza.text.formats import format_time
from liza.usage.costs import record_unconcluded_usage

_PREPARE_LIMIT = 120.0  # seconds to wait for the task lock


class TaskClaim(Value):
    """A claimed task: its run, its slot, and the end of the lease, before which no other agent can claim it.

    ``taken_over``: from whom, and why that is allowed; None if it was no other agent's task.
    """

    task: str
    run: str
    slot: str
    lease: datetime | None
    taken_over: str | None = None


def claim(crew: Crew, agent: str, task_id: str | None = None) -> Result:
    """Claim a task for an agent on behalf of a person or a script; register an unknown agent. Raises Refused."""
    require_person(crew, planner=False)
    agent = parse_agent_id(agent)
    _refuse_elsewhere(crew, agent)
    if role_of(agent) == "code-reviewer":
        return claim_review(crew, agent, task_id)
    claimed = claim_task(crew, agent, task_id, give_back=True)
    state = crew.board.read()
    unfinished = describe_left_work(crew.git, claims.get_task(state, claimed.task), claimed.run)
    until = f"{claimed.lease:%H:%M:%SZ}" if claimed.lease else "its end"
    step = "; ".join(_first_commands(crew, claimed))
    details = {
        "run": claimed.run,
        "worktree": str(crew.paths.slot(claimed.slot)),
        "lease_expires": _format_time(claimed.lease),
        "taken_over": claimed.taken_over,
        "unfinished": unfinished or None,
    }
    message = f"{claimed.task} claimed{f', {claimed.taken_over}' if claimed.taken_over else ''}"
    message += f"\n{unfinished}" if unfinished else ""
    message += f"\nthe lease lasts until {until}; liza heartbeat renews it; liza submit when it is committed"
    shared = describe_overlaps(crew, state, [claimed.task], in_work=True)
    return Result("changed", claimed.task, "CLAIMED", step, details, message, shared)


def _refuse_elsewhere(crew: Crew, agent: str) -> None:
    """Raise Refused for an agent of another host, and in a clone that is no host: its worktrees have no name."""
    if host := crew.find_holder(agent):
        raise Refused(f"{agent} works on the host {host}", "liza host list")
    if crew.remote_name and not crew.host:
        raise Refused("this clone runs no agents: .liza/board.toml has no host", "liza help join")


def _first_commands(crew: Crew, done: TaskClaim) -> tuple[str, ...]:
    """Copy files into the new worktree, as a supervisor does; return the first commands for the person.

    The set-up is one of them: a supervisor runs it itself, but it can take minutes.
    """
    config, enter = crew.board.read().config, f"cd {shlex.quote(str(crew.paths.task_link(done.task)))}"
    setup, test = config.sandbox_setup, config.integration_command
    warnings: tuple[str, ...] = ()
    try:
        is_setup_due = slot_setup.bring(crew.paths.root, crew.worktrees.slot_git(done.slot), config)
    except (LizaError, OSError) as error:
        # The claim is still valid.
        is_setup_due, warnings = bool(setup), (f"(the files of sandbox_copy were not all copied: {error})",)
    first = f"{enter} && {setup}" if setup and is_setup_due else enter
    return (*warnings, first, test) if test else (*warnings, first)


def claim_task(
    crew: Crew, agent: str, task_id: str | None = None, *, or_next: bool = False, give_back: bool = False
) -> TaskClaim:
    """Reserve a task, prepare its slot, confirm the claim and finish the worktree. Raises Refused.

    ``or_next``: if another agent has taken the task meanwhile, take the next one; raises TakenMeanwhile if there is
    none. That is so without ``task_id``, too.
    On an error, the changes of this run are undone. A confirmed claim is kept for the agent's supervisor, which tries
    again to create the worktree; without a supervisor, ``give_back`` makes the task UNCLAIMED again.
    """
    if task_id is not None:
        checked_task_id(task_id)
    reserved, evidence = _reserve(crew, agent, task_id, or_next=or_next or task_id is None)
    task, run, slot = reserved.task, reserved.run, reserved.slot
    crash_points.point("claim", "reserved")
    try:
        lock = Lock(crew.paths.task_lock(task))
        with lock.acquire(timeout=_PREPARE_LIMIT):
            # The git processes inherit the task lock: recovery of a dead claim waits until they have exited.
            locked = crew.with_lock(lock)
            claimed = _prepare_and_confirm(locked, reserved, evidence)
            crash_points.point("claim", "confirmed")
            locked.worktrees.finish(slot, task, run)
            crash_points.point("claim", "finished")
    except BaseException as error:
        _undo(crew, agent, reserved, give_back=give_back and isinstance(error, Exception))
        raise
    return claimed


def _reserve(crew: Crew, agent: str, task_id: str | None, *, or_next: bool) -> tuple[TaskClaim, Evidence]:
    before = crew.board.read()
    is_reserved = any(task.reservation for task in held_tasks(before))
    if is_reserved and undo_dead_reservations(crew, patience=0):
        before = crew.board.read()
    if task_id is not None and before.task(task_id) is None:
        archive.refuse_archived(crew.board, before, [task_id])
    evidence = gather_evidence(crew, before)
    # Whether a task is held is decided under the lock, where no git may run. Else nothing depends on the changes there.
    is_held = before.config.overlap is OverlapRule.HOLD
    settled = replace(evidence, changed=dict(evidence.changed) if is_held else {})
    now = crew.clock.now()
    chosen = task_id or _pick(before, agent, now, evidence)
    last_slots = crew.worktrees.slots_of(agent)
    with crew.change(agent, "reserve", chosen) as tx:
        state = claims.ensure_agent(tx.state, agent, crew.host)
        if or_next:
            tx.task = chosen = _claimable_now(state, chosen, agent, now, settled)
        task = claims.get_task(state, chosen)
        slot = picking.free_slot(state, task, last_slots, crew.host)
        claimant = claims.Claimant(agent, processes.identify_self())
        tx.state, run = claims.reserve(state, chosen, claimant, slot, now, settled)
    return TaskClaim(chosen, run, slot, None, claims.takeover_reason(tx.state, task, agent, evidence)), evidence


def _claimable_now(state: State, wanted: str, agent: str, now: datetime, evidence: Evidence) -> str:
    chosen = picking.claimable_now(state, wanted, agent, now, evidence)
    if chosen is None:
        raise TakenMeanwhile(f"{agent} cannot claim {wanted}: it is taken, and there is no other", "liza task list")
    return chosen


def _pick(state: State, agent: str, now: datetime, evidence: Evidence) -> str:
    pick = picking.pick_task(state, agent, now, evidence)
    if isinstance(pick, Pick):
        return pick.task.id
    why = getattr(pick, "why", None) or pick.reason  # type: ignore[union-attr]
    raise Refused(f"{agent} cannot claim a task: {why}", "liza task list")


def _prepare_and_confirm(crew: Crew, reserved: TaskClaim, evidence: Evidence) -> TaskClaim:
    task = claims.get_task(crew.board.read(), reserved.task)
    # If this process was stopped, the reservation may be gone and the slot in use by another run: this raises then.
    reservation = claims.get_reservation(task, reserved.run)
    lapsed_run = reservation.previous_run if task.status is Status.CLAIMED else None
    if lapsed_run:
        # Its session is proved dead, but processes that it started may still run.
        processes.kill_run(lapsed_run, crew.paths.root)
        # Its agent may never come back to record it.
        record_unconcluded_usage(crew, lapsed_run)
    slots, run = task_branches.worktrees_for(crew, task), reserved.run
    prepared = slots.prepare(reserved.slot, reserved.task, run, salvage_as=lapsed_run or task.run)
    crash_points.point("claim", "prepared")
    with crew.change(reserved.run, "claim", reserved.task) as tx:
        tx.state = claims.confirm(tx.state, reserved.task, reserved.run, prepared.base, crew.clock.now(), evidence)
    return replace(reserved, lease=claims.get_task(tx.state, reserved.task).lease_expires)


def _undo(crew: Crew, agent: str, reserved: TaskClaim, *, give_back: bool) -> None:
    with crew.change(agent, "undo", reserved.task) as tx:
        tx.state = claims.undo_reservation(tx.state, reserved.task, reserved.run)
        is_kept = claims.get_task(tx.state, reserved.task).run == reserved.run
        if is_kept and give_back:
            tx.state = claims.release(tx.state, reserved.task, reserved.run, crew.clock.now(), agent)
            is_kept = False
    if not is_kept:
        crew.worktrees.undo(reserved.slot, reserved.task, reserved.run)
        release_orphan_slot(crew, reserved.slot)


def _format_time(when: datetime | None) -> str | None:
    return format_time(when) if when else None


def claim_review(crew: Crew, agent: str, task_id: str | None = None, *, or_next: bool = False) -> Result:
    """Claim a review and check its commit out in the reviewer's own worktree. Raises Refused.

    ``or_next``: if another agent has taken the review meanwhile, take the next one; raises TakenMeanwhile if there is
    none. That is so without ``task_id``, too.
    """
    before = crew.board.read()
    if task_id is not None and before.task(task_id) is None:
        archive.refuse_archived(crew.board, before, [task_id])
    evidence = gather_evidence(crew, before)
    now = crew.clock.now()
    chosen = task_id
    if chosen is None:
        pick = picking.pick_review(before, agent, evidence)
        if not isinstance(pick, Pick):
            raise Refused(f"{agent} cannot claim a review: {pick.why}", "liza task list")
        chosen, or_next = pick.task.id, True
    shared_code.fetch_reviewed(crew, claims.get_task(before, chosen))
    with crew.change(agent, "claim review", chosen) as tx:
        state = claims.ensure_agent(tx.state, agent, crew.host)
        if or_next:
            tx.task = chosen = _reviewable_now(state, chosen, agent, evidence)
        tx.state, run = reviews.claim_review(state, chosen, agent, now, evidence)
    task = claims.get_task(tx.state, chosen)
    shared_code.fetch_reviewed(crew, task)  # another task, or another commit, if the board has changed
    crew.worktrees.detach(agent, shared_code.choose_review_checkout(crew, task), run)
    worktree = str(crew.paths.slot(agent))
    result = make_result(tx.before, tx.state, chosen, shlex.join(["cd", worktree]), run=run, worktree=worktree)
    return replace(result, message=f'{result.message}; then: liza verdict approve "…", or: liza verdict reject "…"')


def _reviewable_now(state: State, wanted: str, agent: str, evidence: Evidence) -> str:
    chosen = picking.reviewable_now(state, wanted, agent, evidence)
    if chosen is None:
        raise TakenMeanwhile(f"{agent} cannot review {wanted}: it is taken, and there is no other", "liza task list")
    return chosen


class HeartbeatRequest(WorkerRequest, frozen=True, kw_only=True):
    """Renew the lease of the run. ``extend_seconds``: extend it for a long step, which needs a ``reason``."""

    extend_seconds: Annotated[int, msgspec.Meta(ge=1, le=leases.MAX_EXTENSION)] | None = None
    reason: Annotated[str, msgspec.Meta(max_length=leases.MAX_REASON)] = ""


def heartbeat(crew: Crew, request: HeartbeatRequest) -> Result:
    """Renew the lease for lease_duration, or extend it and record why.

    Raises NotOwner, UsageError, Refused.
    """
    if request.extend_seconds is not None:
        return _extend(crew, leases.Extension(request.extend_seconds, request.reason))
    if request.reason.strip():
        raise UsageError("--reason is for an extension: --extend TIME is missing", leases.EXTENSION_EXAMPLE)
    caller = identify_run(crew)
    with crew.board.heartbeat(caller.run) as tx:
        tx.state = leases.renew_lease(tx.state, caller.run, crew.clock.now())
    return Result("changed", caller.task, None, "go on")


def _extend(crew: Crew, extension: leases.Extension) -> Result:
    extension.check()
    caller = identify_run(crew)
    # A revision, unlike a heartbeat: the history of the task gets a line.
    with crew.change(caller.run, "extend lease", caller.task) as tx:
        tx.state = leases.extend_lease(tx.state, caller.run, extension, crew.clock.now())
    return make_result(tx.before, tx.state, caller.task, "go on")


LOCK_TIMEOUT = 60.0  # seconds


class Repair(Value):
    """One repair, as a sentence."""

    message: str


def undo_dead_reservations(crew: Crew, patience: float = LOCK_TIMEOUT) -> list[Repair]:
    """Undo reservations whose claimer is dead. ``patience``: seconds to wait for gits of that claimer.

    Raises LizaError.
    """
    repairs = []
    for task in held_tasks(crew.board.read()):
        reservation = task.reservation
        if reservation is None or not _is_claimer_dead(crew.clock, reservation):
            continue
        with lock_task(crew, task.id, patience) as locked_crew:
            if locked_crew is None:
                continue
            leftovers.remove_locks(locked_crew.paths, locked_crew.git)
            with locked_crew.change(reservation.agent, "undo", task.id) as tx:
                tx.state = claims.undo_reservation(tx.state, task.id, reservation.run)
            if host_of_slot(reservation.slot) == crew.host:
                locked_crew.worktrees.undo(reservation.slot, task.id, reservation.run)
        repairs.append(Repair(f"{task.id}: the reservation of {reservation.run} was left by a dead claim; undone"))
    return repairs


@contextmanager
def lock_task(crew: Crew, task_id: str, patience: float = LOCK_TIMEOUT) -> Iterator[Crew | None]:
    """Yield the crew with the task's lock held, or None if the lock is not available.

    A living holder keeps the lock. Gits of a dead holder still hold it; once they have ended, no process of that claim
    runs.
    """
    path = crew.paths.task_lock(task_id)
    holder = last_holder_pid(path) if path.exists() else None
    is_alive = holder is not None and processes.identify_process(holder) is not None
    lock = Lock(path)
    try:
        lock.acquire(timeout=0 if is_alive else patience)
    except LockTimeout:
        yield None
        return
    try:
        yield crew.with_lock(lock)
    finally:
        lock.release()


def _is_claimer_dead(clock: Clock, reservation: Reservation) -> bool:
    """Return whether the claimer is proved dead; if that cannot be determined, whether the reservation has expired.

    A reservation of this very process counts as dead: it is not claiming now. It could not undo the reservation when
    its claim failed, or an old copy of the board was restored.
    """
    claimer = ProcessIdentity(
        host=reservation.host, boot=reservation.boot, pid=reservation.pid, start=reservation.start
    )
    if claimer == processes.identify_self():
        return True
    dead = processes.is_proved_dead(claimer)
    return dead if dead is not None else reservation.expires < clock.now()


def release_orphan_slot(crew: Crew, slot: str) -> str | None:
    """Save the content of a slot and release it if its task does not use it. Return the task, or None.

    A slot in use by a concurrent claim or release is left alone. Raises GitFailed.
    """
    owner = _find_owner(crew.worktrees, slot)
    if owner is None:
        return None
    lock = Lock(crew.paths.task_lock(owner[0]))
    if not lock.try_acquire():
        return None
    try:
        if _uses_slot(crew.board.read().task(owner[0]), slot):
            return None
        crew.with_lock(lock).worktrees.release(slot, *owner)
    finally:
        lock.release()
    return owner[0]


def remove_orphan_links(crew: Crew) -> tuple[Path, ...]:
    """Remove links of tasks that do not use that slot. Return them. Raises OSError."""
    removed = []
    for link, slot in slot_records.list_links(crew.paths):
        lock = Lock(crew.paths.task_lock(link.name))
        if not lock.try_acquire():
            continue
        try:
            if not _uses_slot(crew.board.read().task(link.name), slot):
                slot_records.unlink_task(crew.paths, link.name, slot)
                removed.append(link)
        finally:
            lock.release()
    return tuple(removed)


def _find_owner(worktrees: Worktrees, slot: str) -> tuple[str, str] | None:
    if not is_task_slot(slot):
        return None
    try:
        return worktrees.owner(slot)
    except GitFailed:
        # The owner file is invalid. The next claim that uses the slot saves and repairs it.
        return None


def _uses_slot(task: Task | None, slot: str) -> bool:
    return task is not None and (
        task.worktree == slot or (task.reservation is not None and task.reservation.slot == slot)
    )
