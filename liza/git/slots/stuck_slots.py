"""Slots that cannot be emptied, because tests left directories without write permission or files of another user."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

from liza.model.errors import SystemRefused

_GIT_FILE = ".git"
"""Part of the names of files in a worktree that git reads by itself."""
_RETIRED_PREFIX = ".aside-"
MAX_RETIRED = 10
"""Maximum number of retired slots of a crew. An alarm names each, with the command that removes it."""


def loosen_permissions(slot: Path) -> bool:
    """Give the owner all permissions on directories below ``slot`` and read permission on files.

    Return whether a permission was changed. Files of another user stay as they are.
    """
    changed = False
    for path, status in _walk_entries(slot):
        mode = status.st_mode | (stat.S_IRWXU if stat.S_ISDIR(status.st_mode) else stat.S_IRUSR)
        if mode != status.st_mode:
            try:
                path.chmod(stat.S_IMODE(mode))
            except OSError:
                continue
            changed = True
    return changed


def remove_pipes(slot: Path) -> bool:
    """Remove pipes below ``slot`` that git would wait for, such as one named .gitignore. Return whether there was one.

    They have no content that could be saved. Raises OSError.
    """
    pipes = [path for path, status in _walk_entries(slot) if stat.S_ISFIFO(status.st_mode) and _GIT_FILE in path.name]
    for path in pipes:
        path.unlink()
    return bool(pipes)


def is_stuck(slot: Path) -> bool:
    """Return whether a directory below ``slot`` prevents this process from removing its content."""
    return any(
        stat.S_ISDIR(status.st_mode) and not os.access(path, os.R_OK | os.W_OK | os.X_OK)
        for path, status in _walk_entries(slot)
    )


def clear_slot_path(slot: Path) -> bool:
    """Remove a link, or rename a file, that is in the place of a slot. Return whether there was one.

    A link is not followed. A file gets a free name beside it. Raises OSError.
    """
    if slot.is_symlink():
        slot.unlink()
        return True
    if slot.is_dir() or not os.path.lexists(slot):
        return False
    retire_slot(slot)
    return True


def retire_slot(slot: Path) -> Path:
    """Rename a slot with its content to a free name beside it. Return the new path. Raises OSError.

    Its ``.git`` file is removed if possible, because it points to the records of the slot that replaces it. Raises
    SystemRefused if MAX_RETIRED slots were retired and none was removed: they would fill the disk.
    """
    if len(list_retired(slot.parent)) >= MAX_RETIRED:
        raise SystemRefused(
            f"{slot} could not be emptied, and {MAX_RETIRED} such worktrees are kept beside it already",
            f"sudo rm -rf {shlex.quote(str(slot.parent))}/{_RETIRED_PREFIX}*",
        )
    names = (slot.with_name(f"{_RETIRED_PREFIX}{slot.name}-{number}") for number in count(1))
    free = next(path for path in names if not os.path.lexists(path))
    slot.rename(free)
    gitfile = free / ".git"
    if gitfile.is_file() and not gitfile.is_symlink():
        with suppress(OSError):
            gitfile.unlink()
    return free


def list_retired(directory: Path) -> tuple[Path, ...]:
    """Return the retired slots in a directory. Raises OSError."""
    return tuple(sorted(path for path in directory.iterdir() if is_retired(path.name))) if directory.is_dir() else ()


def is_retired(name: str) -> bool:
    """Return whether a directory name is that of a retired slot."""
    return name.startswith(_RETIRED_PREFIX)


def _walk_entries(slot: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield ``slot`` and all entries below it, a directory before its content. Links are not followed."""
    pending = [slot]
    while pending:
        path = pending.pop()
        try:
            status = path.lstat()
        except OSError:
            continue
        yield path, status
        if stat.S_ISDIR(status.st_mode):
            try:
                pending += [Path(entry.path) for entry in os.scandir(path)]
            except OSError:
                continue
