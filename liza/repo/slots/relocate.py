"""Repair git's records of slots after a repository, or its slots directory, was moved.

Does what ``git worktree repair`` does, but only for Liza's own worktrees. Records of people's worktrees stay as they
are.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from liza.repo.config_pins import git_dirs
from liza.repo.runner import Git
from liza.repo.slots import slot_records
from liza.repo.worktree_records import list_worktrees
from liza.rules.errors import GitFailed
from liza.rules.paths import Paths
from liza.system import atomic

# The last two parts of a slots directory inside the repository.
_INSIDE_REPOSITORY = (".worktrees", ".slots")


def find_common_dir(root: Path) -> Path:
    """Return the git directory that all worktrees of a repository share. Raises GitFailed."""
    git_dir = root / ".git"
    return git_dir if git_dir.is_dir() else git_dirs(Git(root))[1]


def recorded_slots(common: Path) -> dict[Path, Path]:
    """Return git directory and directory of each worktree that has an owner file or is in one of Liza's directories
    inside the repository.
    """
    return {
        git_dir: gitfile.parent
        for git_dir, gitfile in list_worktrees(common).items()
        if slot_records.has_owner(git_dir) or gitfile.parent.parent.parts[-2:] == _INSIDE_REPOSITORY
    }


def find_misplaced(common: Path, olds: Iterable[Path], directory: Path) -> dict[Path, Path]:
    """Return records of slots that do not point into ``directory``: those with an owner file, and all that point into
    one of ``olds``.
    """
    old_directories = set(olds)
    own = recorded_slots(common)
    worktrees = {git_dir: gitfile.parent for git_dir, gitfile in list_worktrees(common).items()}
    return {
        git_dir: worktree
        for git_dir, worktree in worktrees.items()
        if worktree.parent != directory and (git_dir in own or worktree.parent in old_directories)
    }


def repair_records(paths: Paths, common: Path, olds: Iterable[Path]) -> tuple[str, ...]:
    """Make git's records point to the slots in ``paths.slots``, the slots to their records, and the links to the slots.

    Other files in the slots are not changed. Idempotent. Return the names of the repaired slots. Raises OSError.
    """
    old_directories = set(olds)
    changed = []
    for git_dir, slot in find_misplaced(common, old_directories, paths.slots).items():
        atomic.write(git_dir / "gitdir", os.fsencode(f"{paths.slot(slot.name)}/.git\n"), 0o644, sync=False)
        changed.append(slot.name)
    for slot_name, git_dir in slot_records.git_dirs_below(paths.slots, common).items():
        path = paths.slot(slot_name)
        if path.is_dir() and not path.is_symlink():
            # If `.git` is a directory, the next user of the slot reports it.
            with suppress(GitFailed):
                slot_records.repair_gitfile(path, git_dir)
    slot_records.retarget_links(paths, old_directories)
    return tuple(changed)
