"""Put git's records of slots right after a repository, or its slots directory, was moved.

The same as ``git worktree repair``, for Liza's own worktrees only: records of a person's worktrees are never touched.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from liza.repo.config_pins import git_dirs
from liza.repo.runner import Git
from liza.repo.slots import slot_records
from liza.rules.errors import GitFailed
from liza.rules.paths import Paths
from liza.system import crash_points

_INSIDE_REPOSITORY = (".worktrees", ".slots")


def find_common_dir(root: Path) -> Path:
    """The git directory that all worktrees of a repository share. Raises GitFailed."""
    place = root / ".git"
    return place if place.is_dir() else git_dirs(Git(root))[1]


def recorded_slots(common: Path) -> dict[Path, Path]:
    """The directories of worktrees that have, or had, an owner of ours, or lie where only slots do: by record."""
    found: dict[Path, Path] = {}
    admins = common / "worktrees"
    for admin in sorted(admins.iterdir()) if admins.is_dir() else ():
        path = slot_records.recorded_path(admin)
        if path is not None and (slot_records.has_owner(admin) or path.parent.parent.parts[-2:] == _INSIDE_REPOSITORY):
            found[admin] = path.parent
    return found


def find_misplaced(common: Path, olds: Iterable[Path], place: Path) -> dict[Path, Path]:
    """Records of slots that do not lead to ``place``: those with an owner, and all that lead to one of ``olds``."""
    known = set(olds)
    found = {admin: slot for admin, slot in recorded_slots(common).items() if slot.parent != place}
    admins = common / "worktrees"
    for admin in sorted(admins.iterdir()) if admins.is_dir() else ():
        path = slot_records.recorded_path(admin)
        if path is not None and path.parent.parent in known - {place}:
            found[admin] = path.parent
    return found


def repair_records(paths: Paths, common: Path, olds: Iterable[Path]) -> tuple[str, ...]:
    """Have git's records lead to the slots at ``paths.slots``, the slots back to them, and the links to the slots.

    Files in the slots are not touched. Repeatable. The names of the slots that were put right. Raises OSError.
    """
    known = set(olds)
    changed = []
    for admin, slot in find_misplaced(common, known, paths.slots).items():
        aside = admin / f"gitdir.{os.getpid()}"
        aside.write_bytes(os.fsencode(f"{paths.slot(slot.name)}/.git\n"))
        aside.replace(admin / "gitdir")
        crash_points.point("renamed", "gitdir")
        changed.append(slot.name)
    for slot_name, admin in slot_records.git_dirs_below(paths.slots, common).items():
        path = paths.slot(slot_name)
        if path.is_dir() and not path.is_symlink():
            # A directory in the place of the file is told by whoever has use for the slot.
            with suppress(GitFailed):
                slot_records.repair_gitfile(path, admin)
    slot_records.retarget_links(paths, known)
    return tuple(changed)
