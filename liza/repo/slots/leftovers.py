"""What killed processes leave half made in the repository, and what nobody but them could have finished."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from liza.repo import stale_locks
from liza.repo.config_pins import git_dirs
from liza.repo.runner import Git
from liza.repo.slots import slot_records
from liza.rules.errors import LockTimeout
from liza.rules.paths import Paths
from liza.rules.project.slots_location import MARK_FILE
from liza.system.flock import lock_path

_LOCK_TIMEOUT = 30.0  # seconds
_TEMPORARY_NAME = re.compile(r"\.?.+\.([0-9]{1,9})")


def remove_half_made_slots(paths: Paths, git: Git) -> tuple[str, ...]:
    """Remove slots whose ``git worktree add`` was killed; their names.

    One that is at work is waited for, and after a while left to itself. Raises GitFailed.
    """
    place, common = _slots_and_common_dir(paths, git)
    gone: list[str] = []
    if not any(map(slot_records.is_half_made, slot_records.git_dirs_below(place, common).values())):
        return ()
    with suppress(LockTimeout), lock_path(paths.worktree_lock, timeout=_LOCK_TIMEOUT):
        for slot, admin in slot_records.git_dirs_below(place, common).items():
            if slot_records.is_half_made(admin):
                slot_records.remove_half_made(git, place / slot, admin)
                gone.append(slot)
    return tuple(gone)


def remove_locks(paths: Paths, git: Git) -> tuple[str, ...]:
    """Remove the locks that killed gits left in slots and beside the refs of tasks; their names. Raises GitFailed."""
    place, common = _slots_and_common_dir(paths, git)
    found = [*(common / "refs" / "heads" / "task").rglob("*.lock"), *_liza_locks(place, common)]
    names = tuple(str(lock.relative_to(common)).removesuffix(".lock") for lock in found)
    return stale_locks.remove_stale_locks(git, names)


def find_blocked_locks(paths: Paths, git: Git) -> tuple[Path, ...]:
    """What stands at the place of a lock and is none: every git that needs the lock stops at it. Raises GitFailed."""
    place, common = _slots_and_common_dir(paths, git)
    found = [*common.glob("*.lock"), *(common / "refs" / "heads").rglob("*.lock"), *_liza_locks(place, common)]
    return tuple(sorted(lock for lock in found if stale_locks.is_directory_at_lock(lock)))


def _liza_locks(place: Path, common: Path) -> Iterator[Path]:
    yield from (common / "refs" / "liza").rglob("*.lock")
    for admin in slot_records.git_dirs_below(place, common).values():
        yield from admin.rglob("*.lock")


def remove_temporary_files(paths: Paths, git: Git) -> tuple[str, ...]:
    """Remove what was written aside by a process that is gone and never renamed; the names. Raises OSError."""
    place, common = _slots_and_common_dir(paths, git)
    found = [link for link in _list_entries(paths.worktrees) if link.is_symlink() and link.name.startswith(".")]
    found += [aside for admin in slot_records.git_dirs_below(place, common).values() for aside in admin.glob("liza.*")]
    found += [*paths.slots.glob(f".{MARK_FILE}.*"), *paths.liza.glob(f".{paths.slots_record.name}.*")]
    gone = [aside for aside in found if _is_writer_dead(aside)]
    for aside in gone:
        aside.unlink(missing_ok=True)
    return tuple(str(aside) for aside in gone)


def _slots_and_common_dir(paths: Paths, git: Git) -> tuple[Path, Path]:
    return paths.slots, git_dirs(git)[1]


def _list_entries(place: Path) -> Iterator[Path]:
    yield from place.iterdir() if place.is_dir() else ()


def _is_writer_dead(aside: Path) -> bool:
    """Whether the name says a process that is not there any more."""
    named = _TEMPORARY_NAME.fullmatch(aside.name)
    if named is None:
        return False
    try:
        os.kill(int(named.group(1)), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False
