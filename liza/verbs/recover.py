"""Settle what the dead left: reservations, half-made claims, merges. Every supervisor starts with it; doctor too."""

from __future__ import annotations

from dataclasses import dataclass

from liza.board.lock import Lock
from liza.programs import processes
from liza.rules import taking
from liza.rules.errors import LizaError
from liza.rules.model import FINAL, Identity, Reservation, Status, Task
from liza.verbs.crew import Crew
from liza.verbs.merge import settle_dead_merger
from liza.verbs.record import record


@dataclass(frozen=True)
class Settled:
    """One thing that was put right, as a sentence."""

    what: str


def recover(crew: Crew, by: str) -> tuple[Settled, ...]:
    """Everything that can be settled now. Raises LizaError for what can be neither settled nor left."""
    found = [*_reservations(crew), *_worktrees(crew, by), *_merges(crew, by)]
    record(crew)
    return tuple(found)


def _reservations(crew: Crew) -> list[Settled]:
    found = []
    for task in crew.board.read().tasks:
        held = task.reservation
        if held is None or not _gone(crew, held):
            continue
        lock = Lock(crew.paths.task_lock(task.id))
        if not lock.try_acquire():
            continue
        try:
            with crew.change(held.agent, "undo", task.id) as tx:
                tx.state = taking.undo(tx.state, task.id, held.run)
            crew.worktrees.undo(held.slot, task.id, held.run)
        finally:
            lock.release()
        found.append(Settled(f"{task.id}: the reservation of {held.run} was left by a dead process; taken back"))
    return found


def _gone(crew: Crew, held: Reservation) -> bool:
    """Dead where that can be proved; where it cannot be known, only once the reservation has expired."""
    dead = processes.proved_dead(Identity(host=held.host, boot=held.boot, pid=held.pid, start=held.start))
    return dead if dead is not None else held.expires < crew.clock.now()


def _worktrees(crew: Crew, by: str) -> list[Settled]:
    """Claimed tasks whose worktree was not laid out, and final ones that still hold a slot.

    What another living supervisor holds is that supervisor's to put right.
    """
    found = []
    for task in crew.board.read().tasks:
        if task.reservation is not None or (
            task.assigned_to not in (None, by) and crew.supervised(str(task.assigned_to))
        ):
            continue
        lock = Lock(crew.paths.task_lock(task.id))
        if not lock.try_acquire():
            continue
        try:
            found += _lay_out(crew, task) + _let_go(crew, task)
        finally:
            lock.release()
    return found


def _lay_out(crew: Crew, task: Task) -> list[Settled]:
    if task.status is not Status.CLAIMED or not task.worktree or not task.run or _laid_out(crew, task):
        return []
    crew.worktrees.prepare(task.worktree, task.id, task.run, salvage_as=task.run)
    crew.worktrees.finish(task.worktree, task.id, task.run)
    return [Settled(f"{task.id}: its worktree {task.worktree} was laid out again")]


def _let_go(crew: Crew, task: Task) -> list[Settled]:
    if task.status not in FINAL or not crew.paths.link(task.id).is_symlink():
        return []
    crew.worktrees.clear(crew.paths.link(task.id).resolve().name, task.id, task.run or "unclaimed")
    return [Settled(f"{task.id} is {task.status}: its worktree was saved and let go")]


def _laid_out(crew: Crew, task: Task) -> bool:
    assert task.worktree is not None
    slot = crew.paths.slot(task.worktree)
    if not slot.is_dir() or not crew.paths.link(task.id).is_symlink():
        return False
    try:
        return crew.worktrees.finished(task.worktree, task.id, task.run or "")
    except LizaError:
        return False


def _merges(crew: Crew, by: str) -> list[Settled]:
    open_merges = [task.id for task in crew.board.read().tasks if task.merging and not task.merging.waiting]
    lock = Lock(crew.paths.merge_lock)
    if not lock.try_acquire():
        return []
    try:
        settle_dead_merger(crew.holding(lock), by)
    finally:
        lock.release()
    return [Settled(f"{task}: its merger died; settled by where integration stands") for task in open_merges]
