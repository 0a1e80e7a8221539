"""Damaged slots: what is wrong with a slot, whether it has unsaved work, and its repair.

No file of a person or an agent is deleted: only links, and git's records of nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from liza.git import slot_records
from liza.git.worktrees import Worktrees
from liza.model.errors import GitFailed, LizaError
from liza.model.paths import TASK_LINKS, Paths
from liza.system.locks import lock_path


def list_slots(worktrees: Worktrees) -> tuple[str, ...]:
    """Return the names of all slots: those that git has a record of, and other directories beside them."""
    directory = worktrees.paths.slots
    names = {path.name for path in directory.iterdir() if path.is_dir()} if directory.is_dir() else set()
    others = {name for name in names if name.startswith(".") or name == TASK_LINKS}
    return tuple(sorted({*worktrees.recorded_slots(), *names} - others, key=_natural_key))


def find_damage(worktrees: Worktrees, slot: str) -> str | None:
    """Return what is wrong with a slot, in a phrase; None if nothing is. Raises LizaError, OSError."""
    path = worktrees.paths.slot(slot)
    git_dir = slot_records.find_git_dir(path, worktrees.common_dir)
    if path.is_symlink():
        return "a link is in its place"
    if not path.is_dir():
        return "its directory is missing"
    if git_dir is None:
        return "git has no record of it"
    if slot_records.is_half_made(git_dir):
        return "it was never completed"
    try:
        if not slot_records.points_to(path / ".git", git_dir):
            return "its .git file names another repository"
        slot_records.read_owner(git_dir)
    except (GitFailed, OSError) as error:
        return error.message if isinstance(error, LizaError) else str(error)
    return None


def count_unsaved(worktrees: Worktrees, slot: str) -> int:
    """Return the number of changed files in a slot and of its commits that no ref has. Raises GitFailed."""
    git = worktrees.slot_git(slot)
    commits = git.out("rev-list", "--count", "HEAD", "--not", "--exclude=HEAD", "--all")
    return len(worktrees.list_changes(slot)) + int(commits)


def repair_slot(worktrees: Worktrees, slot: str, commit: str) -> str:
    """Repair a slot as far as it is damaged. Return what was done, in a phrase. Idempotent.

    ``commit``: where a slot without a record is put; its files become changes of that commit.

    Raises GitFailed, OSError.
    """
    path = worktrees.paths.slot(slot)
    with worktrees.lock_slot(slot):
        if path.is_symlink():
            path.unlink()
        git_dir = slot_records.find_git_dir(path, worktrees.common_dir)
        if git_dir is not None and (not path.is_dir() or slot_records.is_half_made(git_dir)):
            with lock_path(worktrees.paths.worktree_lock):
                slot_records.remove_half_made(worktrees.git, path, git_dir)
            return "git's record of it was removed; the next claim creates it again"
    if git_dir is None:
        worktrees.repair(slot, commit)
        return "git has a record of it again; its files are changes in it"
    with worktrees.lock_slot(slot):
        slot_records.repair_gitfile(path, git_dir)
    worktrees.repair(slot, commit)
    return "its .git file and its owner are readable again"


def _natural_key(name: str) -> tuple[str, int]:
    letters = name.rstrip("0123456789")
    return letters, int(name[len(letters) :] or 0)


def measure_bytes(path: Path) -> int:
    """Return the bytes on disk of a directory. A file with several links counts once. Slow for large directories.

    What is removed meanwhile is not counted. Raises OSError.
    """
    seen: set[tuple[int, int]] = set()
    total = 0
    for status in _walk(path):
        key = (status.st_dev, status.st_ino)
        if status.st_nlink == 1 or key not in seen:
            seen.add(key) if status.st_nlink > 1 else None
            total += status.st_blocks * 512
    return total


def measure_slot(paths: Paths, slot: str) -> int:
    """As ``measure_bytes``, for a slot and what its boxes have for themselves."""
    return measure_bytes(paths.slot(slot)) + measure_bytes(paths.box(slot).directory)


def _walk(path: Path) -> Iterator[os.stat_result]:
    directories = [os.fspath(path)]
    while directories:
        try:
            with os.scandir(directories.pop()) as entries:
                for entry in entries:
                    try:
                        yield entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        directories.append(entry.path)
        except (FileNotFoundError, PermissionError, NotADirectoryError):
            continue
