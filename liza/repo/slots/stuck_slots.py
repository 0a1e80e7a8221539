"""Slots that cannot be emptied: tests left directories without write permission, or files of another user."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

_RETIRED_PREFIX = ".aside-"


def loosen_permissions(slot: Path) -> bool:
    """Give the owner all permissions on the directories below ``slot``, and read permission on the files; whether
    anything was changed. What belongs to another user stays as it is."""
    changed = False
    for path, found in _walk_entries(slot):
        wanted = found.st_mode | (stat.S_IRWXU if stat.S_ISDIR(found.st_mode) else stat.S_IRUSR)
        if wanted != found.st_mode:
            try:
                path.chmod(stat.S_IMODE(wanted))
            except OSError:
                continue
            changed = True
    return changed


def is_stuck(slot: Path) -> bool:
    """Whether a directory below ``slot`` keeps this process from removing what is in it."""
    return any(
        stat.S_ISDIR(found.st_mode) and not os.access(path, os.R_OK | os.W_OK | os.X_OK)
        for path, found in _walk_entries(slot)
    )


def clear_slot_path(slot: Path) -> bool:
    """Have no link and no file in the place of a slot; whether something was there. A link is removed and never
    followed, anything else is kept under a free name beside it. Raises OSError."""
    if slot.is_symlink():
        slot.unlink()
        return True
    if slot.is_dir() or not os.path.lexists(slot):
        return False
    retire_slot(slot)
    return True


def retire_slot(slot: Path) -> Path:
    """Rename a slot, with all that it holds, to a free name beside it; the new path. Raises OSError.

    Its ``.git`` file goes, if it can: it leads to the records of the slot that takes its place.
    """
    names = (slot.with_name(f"{_RETIRED_PREFIX}{slot.name}-{number}") for number in count(1))
    free = next(path for path in names if not os.path.lexists(path))
    slot.rename(free)
    leads = free / ".git"
    if leads.is_file() and not leads.is_symlink():
        with suppress(OSError):
            leads.unlink()
    return free


def list_retired(place: Path) -> tuple[Path, ...]:
    """The slots in ``place`` that were set aside. Raises OSError."""
    return tuple(sorted(path for path in place.iterdir() if is_retired(path.name))) if place.is_dir() else ()


def is_retired(name: str) -> bool:
    """Whether a directory of this name is a slot that was set aside."""
    return name.startswith(_RETIRED_PREFIX)


def _walk_entries(slot: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The directories and files below ``slot``, itself included; a directory before what is in it. No link is
    followed."""
    places = [slot]
    while places:
        place = places.pop()
        try:
            found = place.lstat()
        except OSError:
            continue
        yield place, found
        if stat.S_ISDIR(found.st_mode):
            try:
                places += [Path(entry.path) for entry in os.scandir(place)]
            except OSError:
                continue
