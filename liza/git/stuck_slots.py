"""Slots that cannot be emptied, because tests left directories without write permission or files of another user."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from liza.model.errors import GitFailed, SystemRefused
from liza.system import files

_GIT_FILE = ".git"
"""Part of the names of files in a worktree that git reads by itself."""


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
    slot.rename(files.find_free_path(slot.with_name(f"{slot.name}-old")))
    return True


@contextmanager
def explain_stuck(slot: Path) -> Iterator[None]:
    """Raise SystemRefused for an error of git or the system if this process may not change files of the slot."""
    try:
        yield
    except (GitFailed, OSError):
        if not is_stuck(slot):
            raise
        raise SystemRefused(
            f"{slot} has directories of another user, so it cannot be emptied",
            f'sudo chown -R "$(id -u)" {shlex.quote(str(slot))}',
        ) from None


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
