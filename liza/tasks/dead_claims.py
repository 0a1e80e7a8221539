"""Claims of dead processes and their slots: reservations to undo, slots and links that no task uses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from liza.crew.crew import Crew
from liza.git import leftovers, slot_records
from liza.git.worktrees import Worktrees
from liza.model.derived import held_tasks
from liza.model.errors import GitFailed, LockTimeout
from liza.model.model import ProcessIdentity, Reservation, Task
from liza.model.value_classes import Value
from liza.system import processes
from liza.system.locks import Lock, last_holder_pid
from liza.tasks.rules import claims

LOCK_TIMEOUT = 60.0  # seconds
_TASK_SLOT = re.compile(r"s[0-9]+")


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
        if reservation is None or not _is_claimer_dead(crew, reservation):
            continue
        with lock_task(crew, task.id, patience) as locked_crew:
            if locked_crew is None:
                continue
            leftovers.remove_locks(locked_crew.paths, locked_crew.git)
            with locked_crew.change(reservation.agent, "undo", task.id) as tx:
                tx.state = claims.undo_reservation(tx.state, task.id, reservation.run)
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


def _is_claimer_dead(crew: Crew, reservation: Reservation) -> bool:
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
    return dead if dead is not None else reservation.expires < crew.clock.now()


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
    if not _TASK_SLOT.fullmatch(slot):
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
