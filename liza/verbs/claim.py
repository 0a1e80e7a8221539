"""claim: take a task in two phases, so that a claimed task always has its worktree."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import datetime

from liza.crew.caller import human_or
from liza.crew.crew import Crew
from liza.crew.recovery.orphan_slots import let_go
from liza.crew.result import Result
from liza.rules.errors import LizaError, Refused
from liza.rules.model import State
from liza.rules.paths import agent_id, role_of
from liza.rules.paths import task_id as checked_task_id
from liza.rules.tasks import claims, picking
from liza.rules.tasks.picking import Evidence, Pick
from liza.system import crash_points, processes
from liza.system.file_lock import Lock

_PREPARE_LIMIT = 120.0


@dataclass(frozen=True)
class Claimed:
    """A task that is now ``run``'s, with its worktree made, until ``lease`` at the least."""

    task: str
    run: str
    slot: str
    lease: datetime | None


def claim(crew: Crew, agent: str, task_id: str | None = None) -> Result:
    """A person, or a script, claims for an agent; an unknown agent is registered. Raises Refused."""
    human_or(crew, planner=False)
    agent = agent_id(agent)
    if role_of(agent) == "code-reviewer":
        from liza.verbs.review import claim_review

        return claim_review(crew, agent, task_id)
    done = take(crew, agent, task_id, give_back=True)
    until = f"{done.lease:%H:%M:%SZ}" if done.lease else "its end"
    step = "; ".join([*_before_work(crew, done), "liza submit when it is committed"])
    more = {"run": done.run, "worktree": str(crew.paths.slot(done.slot)), "lease_expires": _stamp(done.lease)}
    return Result("changed", done.task, "CLAIMED", f"{step} (lease until {until})", more)


def _before_work(crew: Crew, done: Claimed) -> tuple[str, ...]:
    """Copy files into the new worktree, as a supervisor does; return what a person types first there. A supervisor runs
    the set-up itself; by hand it may take minutes, and is left to the person."""
    from liza.repo.slots import slot_setup

    config, enter = crew.board.read().config, f"cd {shlex.quote(str(crew.paths.link(done.task)))}"
    setup, test = config.sandbox_setup, config.integration_command
    failed: tuple[str, ...] = ()
    try:
        due = slot_setup.bring(crew.paths.root, crew.worktrees.slot_git(done.slot), config)
    except (LizaError, OSError) as error:
        # The claim holds all the same.
        due, failed = bool(setup), (f"(the files of sandbox_copy were not all copied: {error})",)
    words = f"{enter} && {setup}" if setup and due else enter
    return (*failed, words, test) if test else (*failed, words)


def take(crew: Crew, agent: str, task_id: str | None = None, *, give_back: bool = False) -> Claimed:
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
            held = crew.holding(lock)
            done = _prepare_and_confirm(held, Claimed(task, run, slot, None), evidence)
            crash_points.point("claim", "confirmed")
            held.worktrees.finish(slot, task, run)
            crash_points.point("claim", "finished")
    except BaseException as error:
        _undo(crew, agent, Claimed(task, run, slot, None), give_back=give_back and isinstance(error, Exception))
        raise
    return done


def _reserve(crew: Crew, agent: str, task_id: str | None) -> tuple[str, str, str, Evidence]:
    before = crew.board.read()
    evidence = crew.evidence(before)
    now = crew.clock.now()
    wanted = task_id or _pick(before, agent, now, evidence)
    with crew.change(agent, "reserve", wanted) as tx:
        state = claims.register(tx.state, agent)
        slot = picking.free_slot(state, claims.find(state, wanted))
        taker = claims.Taker(agent, processes.identity())
        tx.state, run = claims.reserve(state, wanted, taker, slot, now, evidence)
    return run, wanted, slot, evidence


def _pick(state: State, agent: str, now: datetime, evidence: Evidence) -> str:
    chosen = picking.choose(state, agent, now, evidence)
    if isinstance(chosen, Pick):
        return chosen.task.id
    raise Refused(f"nothing for {agent} to claim: {getattr(chosen, 'why', None) or chosen.reason}", "liza task list")  # type: ignore[union-attr]


def _prepare_and_confirm(crew: Crew, at: Claimed, evidence: Evidence) -> Claimed:
    task = claims.find(crew.board.read(), at.task)
    # Taken back while this process stood still, the slot may be at work for another by now.
    reservation = claims.reserved(task, at.run)
    lapsed = reservation.previous_run if task.status == "CLAIMED" else None
    if lapsed:
        # Its session is proved dead; what that session had started may still be running.
        processes.kill_run(lapsed, crew.paths.root)
    prepared = crew.worktrees.prepare(at.slot, at.task, at.run, salvage_as=lapsed or task.run)
    crash_points.point("claim", "prepared")
    with crew.change(at.run, "claim", at.task) as tx:
        tx.state = claims.confirm(tx.state, at.task, at.run, prepared.base, crew.clock.now(), evidence)
    return Claimed(at.task, at.run, at.slot, claims.find(tx.state, at.task).lease_expires)


def _undo(crew: Crew, agent: str, at: Claimed, *, give_back: bool) -> None:
    with crew.change(agent, "undo", at.task) as tx:
        tx.state = claims.undo(tx.state, at.task, at.run)
        confirmed = claims.find(tx.state, at.task).run == at.run
        if confirmed and give_back:
            tx.state = claims.release(tx.state, at.task, crew.clock.now(), agent)
            confirmed = False
    if not confirmed:
        crew.worktrees.undo(at.slot, at.task, at.run)
        let_go(crew, at.slot)


def _stamp(when: datetime | None) -> str | None:
    return when.strftime("%Y-%m-%dT%H:%M:%SZ") if when else None
