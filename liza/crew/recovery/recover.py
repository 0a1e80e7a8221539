"""Settle what the dead left: reservations, half-made claims, merges. Every supervisor starts with it; doctor too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from liza.board import wake_up
from liza.crew.crew import Crew
from liza.crew.drift import drift
from liza.crew.merging.dead_mergers import recover_dead_merger
from liza.crew.recovery import lost_worktrees, run_cleanup
from liza.crew.recovery.orphan_slots import release_orphan_slot, remove_orphan_links
from liza.crew.recovery.recorder import record_history
from liza.programs.session import run_archive
from liza.repo.merge import merge_refs, merges
from liza.repo.slots import leftovers, stuck_slots
from liza.rules.errors import LizaError, LockTimeout, Refused
from liza.rules.model import FINAL_STATUSES, ProcessIdentity, Reservation, Status, Task
from liza.rules.tasks import claims
from liza.system import processes
from liza.system.file_lock import Lock, last_holder_pid

_LOCK_TIMEOUT = 60.0  # seconds


@dataclass(frozen=True)
class Repair:
    """One thing that was put right, as a sentence."""

    message: str


def recover_crew(crew: Crew, by: str) -> tuple[Repair, ...]:
    """Everything that can be settled now. Raises Missing where integration is gone, which no step can go without, and
    LizaError for what can be neither settled nor left."""
    with crew.change(by, "settle"):
        # Nothing is changed: what a writer left that died is settled by whoever comes next.
        pass
    if merges.branch_tip(crew.git, crew.board.read().config.integration_branch) is None:
        # A merge under way may know where it was.
        _recover_merges(crew, by)
        drift.require_integration(crew, crew.board.read())
    lost_worktrees.refuse_replaced(crew)
    found = [
        *undo_dead_reservations(crew),
        *_repair_worktrees(crew, by),
        *_repair_reviews(crew, by),
        *_repair_review_refs(crew),
        *_recover_merges(crew, by),
        *_remove_leftovers(crew),
        *_archive_runs(crew, by),
    ]
    record_history(crew)
    # Whoever started this agent waits to hear that nothing was in its way; a full disk must not be.
    with suppress(OSError):
        wake_up.wake_watchers(crew.paths, by)
    return tuple(found)


def undo_dead_reservations(crew: Crew, patience: float = _LOCK_TIMEOUT) -> list[Repair]:
    """Take back reservations that nobody is going to confirm; ``patience``: seconds for the gits of their claimers.

    Raises LizaError.
    """
    found = []
    for task in crew.board.read().tasks:
        held = task.reservation
        if held is None or not _is_claimer_dead(crew, held):
            continue
        with _lock_task(crew, task.id, patience) as own:
            if own is None:
                continue
            leftovers.remove_locks(own.paths, own.git)
            with own.change(held.agent, "undo", task.id) as tx:
                tx.state = claims.undo_reservation(tx.state, task.id, held.run)
            own.worktrees.undo(held.slot, task.id, held.run)
        found.append(Repair(f"{task.id}: the reservation of {held.run} belongs to no claim under way; taken back"))
    return found


@contextmanager
def _lock_task(crew: Crew, task_id: str, patience: float = _LOCK_TIMEOUT) -> Iterator[Crew | None]:
    """The crew with the task's lock held; None where it is not had. While its holder lives that is who goes on; the
    gits of a dead one still hold it, and once they are over nothing of that claim is at work any more."""
    path = crew.paths.task_lock(task_id)
    holder = last_holder_pid(path) if path.exists() else None
    lives = holder is not None and processes.identify_process(holder) is not None
    lock = Lock(path)
    try:
        lock.acquire(timeout=0 if lives else patience)
    except LockTimeout:
        yield None
        return
    try:
        yield crew.with_lock(lock)
    finally:
        lock.release()


def _is_claimer_dead(crew: Crew, held: Reservation) -> bool:
    """Dead where that can be proved; where it cannot be known, only once the reservation has expired.

    One of this very process, which is not claiming while it asks, is one that it could not take back when its claim
    failed, or that an old copy of the board brought again.
    """
    whose = ProcessIdentity(host=held.host, boot=held.boot, pid=held.pid, start=held.start)
    if whose == processes.identify_self():
        return True
    dead = processes.is_proved_dead(whose)
    return dead if dead is not None else held.expires < crew.clock.now()


def _repair_worktrees(crew: Crew, by: str) -> list[Repair]:
    """Claimed tasks whose worktree was not laid out.

    What another living supervisor holds is that supervisor's to put right.
    """
    found = []
    for seen in _find_claims_to_repair(crew, by):
        with _lock_task(crew, seen.id) as own:
            # As it is now: while the lock was waited for its claim may have been finished, or another begun.
            task = None if own is None else own.board.read().task(seen.id)
            if own is not None and task is not None and _needs_worktree(own, task, by):
                leftovers.remove_locks(own.paths, own.git)
                found.append(_recreate_worktree(own, task))
    return found


def claims_without_worktree(crew: Crew, by: str) -> list[Task]:
    """Claimed tasks whose worktree is not there, and that nobody is at work on just now. Raises LizaError."""
    found = []
    for seen in _find_claims_to_repair(crew, by):
        with _lock_task(crew, seen.id, patience=0) as own:
            task = None if own is None else own.board.read().task(seen.id)
            if own is not None and task is not None and _needs_worktree(own, task, by):
                found.append(task)
    return found


def reviews_without_worktree(crew: Crew, by: str) -> list[Task]:
    """Reviews that were taken and whose commit was not laid out in the reviewer's worktree. Raises LizaError."""
    found = []
    for task in crew.board.read().tasks:
        reviewer, run = task.reviewing_by, task.review_run
        if reviewer is None or run is None or reviewer == by or crew.is_supervised(reviewer):
            continue
        if task.review_commit and not crew.worktrees.is_finished(reviewer, reviewer, run):
            found.append(task)
    return found


def _find_claims_to_repair(crew: Crew, by: str) -> list[Task]:
    return [task for task in crew.board.read().tasks if _needs_worktree(crew, task, by)]


def _needs_worktree(crew: Crew, task: Task, by: str) -> bool:
    if task.status is not Status.CLAIMED or task.reservation is not None or not task.worktree or not task.run:
        return False
    others = task.assigned_to not in (None, by) and crew.is_supervised(str(task.assigned_to))
    return not others and not _has_worktree(crew, task)


def _recreate_worktree(crew: Crew, task: Task) -> Repair:
    assert task.worktree is not None
    assert task.run is not None
    crew.worktrees.prepare(task.worktree, task.id, task.run, salvage_as=task.run)
    crew.worktrees.finish(task.worktree, task.id, task.run)
    return Repair(f"{task.id}: its worktree {task.worktree} was laid out again")


def _repair_reviews(crew: Crew, by: str) -> list[Repair]:
    found = []
    for task in reviews_without_worktree(crew, by):
        reviewer, run, commit = str(task.reviewing_by), str(task.review_run), str(task.review_commit)
        if crew.worktrees.detach_once(reviewer, commit, run):
            found.append(Repair(f"{task.id}: its commit was laid out for the review {run}"))
    return found


def _remove_leftovers(crew: Crew) -> list[Repair]:
    """What is nobody's: slots and links of tasks that are over, half-made slots, locks and files of the dead."""
    found = [
        f"a link stood in the place of the worktree {slot}; removed, and not followed"
        for slot in _remove_slot_links(crew)
    ]
    found += [
        f"the records of the worktree {slot} were missing or corrupt; it was made anew" for slot in _repair_slots(crew)
    ]
    freed = [(slot, release_orphan_slot(crew, slot)) for slot in crew.worktrees.recorded_slots()]
    found += [f"{task} does not need {slot} any more: saved and let go" for slot, task in freed if task]
    found += [f"the link .worktrees/{task} led to another task's worktree" for task in remove_orphan_links(crew)]
    found += [
        f"the half-made worktree {slot} was removed" for slot in leftovers.remove_half_made_slots(crew.paths, crew.git)
    ]
    found += [f"{lock} was left by a killed git; removed" for lock in leftovers.remove_locks(crew.paths, crew.git)]
    leftovers.remove_temporary_files(crew.paths, crew.git)
    return [Repair(one) for one in found]


def _archive_runs(crew: Crew, by: str) -> Iterator[Repair]:
    """Directories of runs that are long over, of this agent and of those without a supervisor."""
    for agent in crew.board.read().agents:
        if agent != by and crew.is_supervised(agent):
            continue
        # A full disk, or what somebody put there, is in nobody's way.
        with suppress(LizaError, OSError):
            gone = run_cleanup.archive_old_runs(crew, agent)
            if gone:
                text = f"{agent}: {len(gone)} old run directories went to {run_archive.archive_path(crew.paths, gone[0]).parent}"
                yield Repair(text)


def _remove_slot_links(crew: Crew) -> list[str]:
    """Slots in whose place a link stood, but for those of tasks: the next one who needs them makes them anew."""
    of_tasks = {task.worktree for task in crew.board.read().tasks if task.status not in FINAL_STATUSES}
    names = [
        name for name in crew.worktrees.recorded_slots() if crew.paths.slot(name).is_symlink() and name not in of_tasks
    ]
    return [name for name in names if stuck_slots.clear_slot_path(crew.paths.slot(name))]


def _repair_slots(crew: Crew) -> list[str]:
    """Slots of which something was destroyed, and that nobody has had use for since: what lies there can be saved."""
    place = crew.paths.slots
    there = (
        {path.name for path in place.iterdir() if path.is_dir() and not path.is_symlink()} if place.is_dir() else set()
    )
    there = {name for name in there if not stuck_slots.is_retired(name)}
    names = sorted({*there, *crew.worktrees.recorded_slots()})
    tip = drift.require_integration(crew, crew.board.read())
    return [name for name in names if crew.worktrees.repair(name, tip)]


def _has_worktree(crew: Crew, task: Task) -> bool:
    assert task.worktree is not None
    slot = crew.paths.slot(task.worktree)
    if not slot.is_dir() or not crew.paths.task_link(task.id).is_symlink():
        return False
    try:
        return crew.worktrees.is_finished(task.worktree, task.id, task.run or "")
    except LizaError:
        return False


def _repair_review_refs(crew: Crew) -> list[Repair]:
    """Refs that keep commits under review: made for open tasks that have none, taken away from closed ones."""
    kept, found = merge_refs.list_reviewed(crew.git), []
    for task in crew.board.read().tasks:
        wanted = None if task.status in FINAL_STATUSES else task.review_commit
        if task.id in kept and task.status in FINAL_STATUSES:
            merge_refs.delete_review_ref(crew.git, task.id)
        elif wanted and kept.get(task.id) != wanted and merge_refs.has_commit(crew.git, wanted):
            merge_refs.write_review_ref(crew.git, task.id, wanted)
            found.append(Repair(f"{task.id}: its commit {wanted[:12]} is kept for the review by a ref"))
    return found


def _is_merge_unfinished(task: Task) -> bool:
    """Whether a merge was begun and its candidate not recorded as tested: such a one is offered again by a merge."""
    return task.merging is not None and task.merging.tested is None and not task.merging.waiting


def _recover_merges(crew: Crew, by: str) -> list[Repair]:
    open_merges = [task.id for task in crew.board.read().tasks if _is_merge_unfinished(task)]
    lock = Lock(crew.paths.merge_lock)
    if not lock.try_acquire():
        return []
    try:
        recover_dead_merger(crew.with_lock(lock), by)
    except Refused as later:
        # A git of the person's is at work in the checkout that has to be settled: the next merge sees to it.
        return [Repair(later.message)]
    finally:
        lock.release()
    return [Repair(f"{task}: its merger died; settled by where integration stands") for task in open_merges]
