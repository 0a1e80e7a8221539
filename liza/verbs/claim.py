"""claim: take a task in two phases, so that a claimed task always has its worktree."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import datetime

from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.recovery.orphan_slots import release_orphan_slot
from liza.crew.result import Result
from liza.rules.errors import LizaError, Refused
from liza.rules.model import State
from liza.rules.paths import check_task_id as checked_task_id
from liza.rules.paths import parse_agent_id, role_of
from liza.rules.tasks import claims, picking
from liza.rules.tasks.picking import Evidence, Pick
from liza.system import crash_points, processes
from liza.system.file_lock import Lock

_PREPARE_LIMIT = 120.0


@dataclass(frozen=True)
class TaskClaim:
    """A task that is now ``run``'s, with its worktree made, until ``lease`` at the least."""

    task: str
    run: str
    slot: str
    lease: datetime | None


def claim(crew: Crew, agent: str, task_id: str | None = None) -> Result:
    """A person, or a script, claims for an agent; an unknown agent is registered. Raises Refused."""
    require_person(crew, planner=False)
    agent = parse_agent_id(agent)
    if role_of(agent) == "code-reviewer":
        from liza.verbs.claim_review import claim_review

        return claim_review(crew, agent, task_id)
    done = claim_task(crew, agent, task_id, give_back=True)
    until = f"{done.lease:%H:%M:%SZ}" if done.lease else "its end"
    step = "; ".join([*_first_commands(crew, done), "liza submit when it is committed"])
    more = {"run": done.run, "worktree": str(crew.paths.slot(done.slot)), "lease_expires": _format_time(done.lease)}
    return Result("changed", done.task, "CLAIMED", f"{step} (lease until {until})", more)


def _first_commands(crew: Crew, done: TaskClaim) -> tuple[str, ...]:
    """Copy files into the new worktree, as a supervisor does; return what a person types first there. A supervisor runs
    the set-up itself; by hand it may take minutes, and is left to the person."""
    from liza.repo.slots import slot_setup

    config, enter = crew.board.read().config, f"cd {shlex.quote(str(crew.paths.task_link(done.task)))}"
    setup, test = config.sandbox_setup, config.integration_command
    failed: tuple[str, ...] = ()
    try:
        due = slot_setup.bring(crew.paths.root, crew.worktrees.slot_git(done.slot), config)
    except (LizaError, OSError) as error:
        # The claim holds all the same.
        due, failed = bool(setup), (f"(the files of sandbox_copy were not all copied: {error})",)
    words = f"{enter} && {setup}" if setup and due else enter
    return (*failed, words, test) if test else (*failed, words)


def claim_task(crew: Crew, agent: str, task_id: str | None = None, *, give_back: bool = False) -> TaskClaim:
    """Reserve, prepare, confirm, and lay the worktree out. Raises Refused; what bears this run is undone then.

    A confirmed claim whose worktree cannot be laid out is tried again by the agent's supervisor. Where there is none,
    ``give_back`` makes the task UNCLAIMED again.
    """
    if task_id is not None:
        checked_task_id(task_id)
    run, task, slot, evidence = _reserve(crew, agent, task_id)
    crash_points.point("claim", "reserved")
    try:
        lock = Lock(crew.paths.task_lock(task))
        with lock.acquire(timeout=_PREPARE_LIMIT):
            # Whoever settles a dead claim waits for its gits as well.
            held = crew.with_lock(lock)
            done = _prepare_and_confirm(held, TaskClaim(task, run, slot, None), evidence)
            crash_points.point("claim", "confirmed")
            held.worktrees.finish(slot, task, run)
            crash_points.point("claim", "finished")
    except BaseException as error:
        _undo(crew, agent, TaskClaim(task, run, slot, None), give_back=give_back and isinstance(error, Exception))
        raise
    return done


def _reserve(crew: Crew, agent: str, task_id: str | None) -> tuple[str, str, str, Evidence]:
    before = crew.board.read()
    evidence = crew.gather_evidence(before)
    now = crew.clock.now()
    wanted = task_id or _pick(before, agent, now, evidence)
    with crew.change(agent, "reserve", wanted) as tx:
        state = claims.ensure_agent(tx.state, agent)
        slot = picking.free_slot(state, claims.get_task(state, wanted))
        taker = claims.Claimant(agent, processes.identify_self())
        tx.state, run = claims.reserve(state, wanted, taker, slot, now, evidence)
    return run, wanted, slot, evidence


def _pick(state: State, agent: str, now: datetime, evidence: Evidence) -> str:
    chosen = picking.pick_task(state, agent, now, evidence)
    if isinstance(chosen, Pick):
        return chosen.task.id
    raise Refused(f"nothing for {agent} to claim: {getattr(chosen, 'why', None) or chosen.reason}", "liza task list")  # type: ignore[union-attr]


def _prepare_and_confirm(crew: Crew, at: TaskClaim, evidence: Evidence) -> TaskClaim:
    task = claims.get_task(crew.board.read(), at.task)
    # Taken back while this process stood still, the slot may be at work for another by now.
    reservation = claims.get_reservation(task, at.run)
    lapsed = reservation.previous_run if task.status == "CLAIMED" else None
    if lapsed:
        # Its session is proved dead; what that session had started may still be running.
        processes.kill_run(lapsed, crew.paths.root)
    prepared = crew.worktrees.prepare(at.slot, at.task, at.run, salvage_as=lapsed or task.run)
    crash_points.point("claim", "prepared")
    with crew.change(at.run, "claim", at.task) as tx:
        tx.state = claims.confirm(tx.state, at.task, at.run, prepared.base, crew.clock.now(), evidence)
    return TaskClaim(at.task, at.run, at.slot, claims.get_task(tx.state, at.task).lease_expires)


def _undo(crew: Crew, agent: str, at: TaskClaim, *, give_back: bool) -> None:
    with crew.change(agent, "undo", at.task) as tx:
        tx.state = claims.undo_reservation(tx.state, at.task, at.run)
        confirmed = claims.get_task(tx.state, at.task).run == at.run
        if confirmed and give_back:
            tx.state = claims.release(tx.state, at.task, crew.clock.now(), agent)
            confirmed = False
    if not confirmed:
        crew.worktrees.undo(at.slot, at.task, at.run)
        release_orphan_slot(crew, at.slot)


def _format_time(when: datetime | None) -> str | None:
    return when.strftime("%Y-%m-%dT%H:%M:%SZ") if when else None
