"""Orphan slots and links: their owner is a closed task, or a task that has another slot."""

from __future__ import annotations

import re
from pathlib import Path

from liza.crew.crew import Crew
from liza.git.slots import slot_records
from liza.model.errors import GitFailed
from liza.model.model import Task
from liza.system.locks import Lock

_TASK_SLOT = re.compile(r"s[0-9]+")


def release_orphan_slot(crew: Crew, slot: str) -> str | None:
    """Save the content of a slot and release it if its task does not use it. Return the task, or None.

    A slot in use by a concurrent claim or release is left alone. Raises GitFailed.
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


def _find_owner(crew: Crew, slot: str) -> tuple[str, str] | None:
    if not _TASK_SLOT.fullmatch(slot):
        return None
    try:
        return crew.worktrees.owner(slot)
    except GitFailed:
        # The owner file is invalid. The next claim that uses the slot saves and repairs it.
        return None


def _uses_slot(task: Task | None, slot: str) -> bool:
    return task is not None and (
        task.worktree == slot or (task.reservation is not None and task.reservation.slot == slot)
    )
