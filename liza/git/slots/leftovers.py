"""Remove what killed processes left in the repository: half-made slots, lock files, temporary files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from liza.git import stale_locks
from liza.git.git_config import git_dirs
from liza.git.rules.slots_location import MARK_FILE
from liza.git.runner import Git
from liza.git.slots import slot_records
from liza.model.errors import LockTimeout
from liza.model.paths import Paths
from liza.system.locks import lock_path

_LOCK_TIMEOUT = 30.0  # seconds
_TEMPORARY_NAME = re.compile(r"\.?.+\.([0-9]{1,9})")


def remove_half_made_slots(paths: Paths, git: Git) -> tuple[str, ...]:
    """Remove slots whose ``git worktree add`` was killed. Return their names.

    Waits up to 30 seconds for a process that is creating a slot, then leaves it alone. Raises GitFailed.
    """
    slots_dir, common = _slots_and_common_dir(paths, git)
    removed: list[str] = []
    if not any(map(slot_records.is_half_made, slot_records.git_dirs_below(slots_dir, common).values())):
        return ()
    with suppress(LockTimeout), lock_path(paths.worktree_lock, timeout=_LOCK_TIMEOUT):
        for slot, git_dir in slot_records.git_dirs_below(slots_dir, common).items():
            if slot_records.is_half_made(git_dir):
                slot_records.remove_half_made(git, slots_dir / slot, git_dir)
                removed.append(slot)
    return tuple(removed)


def remove_locks(paths: Paths, git: Git) -> tuple[str, ...]:
    """Remove lock files that killed gits left in slots and beside task refs. Return the names of the locked files.
    Raises GitFailed.
    """
    slots_dir, common = _slots_and_common_dir(paths, git)
    locks = [*(common / "refs" / "heads" / "task").rglob("*.lock"), *_liza_locks(slots_dir, common)]
    names = tuple(str(lock.relative_to(common)).removesuffix(".lock") for lock in locks)
    return stale_locks.remove_stale_locks(git, names)


def _liza_locks(slots_dir: Path, common: Path) -> Iterator[Path]:
    yield from (common / "refs" / "liza").rglob("*.lock")
    for git_dir in slot_records.git_dirs_below(slots_dir, common).values():
        yield from git_dir.rglob("*.lock")


def remove_temporary_files(paths: Paths, git: Git) -> tuple[str, ...]:
    """Remove temporary files and links whose writer has died before the rename. Return their names. Raises OSError."""
    slots_dir, common = _slots_and_common_dir(paths, git)
    candidates = [link for link in _list_entries(paths.task_links) if link.is_symlink() and link.name.startswith(".")]
    candidates += [
        path for git_dir in slot_records.git_dirs_below(slots_dir, common).values() for path in git_dir.glob(".*")
    ]
    info = common / "info"
    records = (paths.slots / MARK_FILE, paths.slots_record, paths.pins, info / "exclude", info / "attributes")
    candidates += [path for record in records for path in record.parent.glob(f".{record.name}.*")]
    candidates += paths.tx.glob(".*")
    orphaned = [path for path in candidates if _is_writer_dead(path)]
    for path in orphaned:
        path.unlink(missing_ok=True)
    return tuple(str(path) for path in orphaned)


def _slots_and_common_dir(paths: Paths, git: Git) -> tuple[Path, Path]:
    return paths.slots, git_dirs(git)[1]


def _list_entries(directory: Path) -> Iterator[Path]:
    yield from directory.iterdir() if directory.is_dir() else ()


def _is_writer_dead(path: Path) -> bool:
    """Return whether the process whose id ends the name does not exist any more."""
    match = _TEMPORARY_NAME.fullmatch(path.name)
    if match is None:
        return False
    try:
        os.kill(int(match.group(1)), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False
