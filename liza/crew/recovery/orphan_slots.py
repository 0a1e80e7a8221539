"""Slots and links that outlived their claim: a slot bears a task that is over, or that has another slot by now."""

from __future__ import annotations

import re

from liza.crew.crew import Crew
from liza.repo.slots import slot_records
from liza.rules.errors import GitFailed
from liza.rules.model import Task
from liza.system.file_lock import Lock

_TASK_SLOT = re.compile(r"s[0-9]+")


def release_orphan_slot(crew: Crew, slot: str) -> str | None:
    """Save what is in a slot and free it, if the task that it bears does not name it; the task, or None.

    A claim, or a clearing, that is under way is left alone. Raises GitFailed.
    """
    owner = _find_owner(crew, slot)
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


def remove_orphan_links(crew: Crew) -> tuple[str, ...]:
    """Take away the links ``.worktrees/<task>`` of tasks that do not name the slot; their names. Raises OSError."""
    gone = []
    for link, slot in slot_records.list_links(crew.paths):
        lock = Lock(crew.paths.task_lock(link.name))
        if not lock.try_acquire():
            continue
        try:
            if not _uses_slot(crew.board.read().task(link.name), slot):
                slot_records.unlink_task(crew.paths, link.name, slot)
                gone.append(link.name)
        finally:
            lock.release()
    return tuple(gone)


def _find_owner(crew: Crew, slot: str) -> tuple[str, str] | None:
    if not _TASK_SLOT.fullmatch(slot):
        return None
    try:
        return crew.worktrees.owner(slot)
    except GitFailed:
        # Somebody wrote nonsense there. It is saved and mended by the next claim that has use for the slot.
        return None


def _uses_slot(task: Task | None, slot: str) -> bool:
    return task is not None and (
        task.worktree == slot or (task.reservation is not None and task.reservation.slot == slot)
    )
