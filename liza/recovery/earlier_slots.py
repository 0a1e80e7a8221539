"""Slots that an earlier crew of this repository left in a directory of its own, after `git clean` and a second init."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from liza.crew.crew import Crew
from liza.git.slots import relocate, slots_directory
from liza.model.errors import LizaError
from liza.system.locks import lock_path


def separate_slots(crew: Crew) -> tuple[str, ...]:
    """Repair slots of which git has several records with one path. Return what was done. Raises OSError, LizaError."""
    common = relocate.find_common_dir(crew.paths.root)
    # Nearly always there is nothing to do: a frozen claim that holds the lock must not stop a start.
    if not relocate.shares_path(common):
        return ()
    recorded = {slot.parent for slot in relocate.recorded_slots(common).values()}
    directories = slots_directory.list_directories(crew.paths.root, recorded, os.environ)
    with lock_path(crew.paths.worktree_lock):
        changed = relocate.separate_records(common, directories)
    return tuple(
        f"git had two worktrees recorded at one path; the record {record.name} names {slot} now"
        for record, slot in changed.items()
    )


def list_earlier_slots(crew: Crew) -> Iterator[tuple[Path, str]]:
    """Yield the slots of earlier crews, each with the task or agent that owns it. Raises GitFailed, OSError."""
    for worktrees in crew.worktrees.earlier():
        for slot in worktrees.slot_names():
            owner = None
            # The owner file may be unreadable: the slot is named all the same.
            with suppress(LizaError):
                owner = worktrees.owner(slot)
            yield worktrees.paths.slot(slot), slot if owner is None else owner[0]


def remove_earlier_slots(crew: Crew) -> tuple[str, ...]:
    """Save and remove the slots of earlier crews. Return the paths of those that cannot be saved: they stay."""
    remaining: list[str] = []
    for worktrees in crew.worktrees.earlier():
        with suppress(LizaError, OSError):
            worktrees.remove_all()
        remaining += map(str, slots_directory.remove_if_empty(worktrees.paths.slots))
    return tuple(remaining)
