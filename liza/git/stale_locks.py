"""Remove lock files that a killed git left beside refs. Every later git fails until they are removed."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from liza.git.git_config import git_dirs
from liza.git.runner import Git
from liza.git.worktree_records import list_worktrees
from liza.system import proc_stat

_MIN_AGE = 1.0  # seconds; a git at work holds such a lock for milliseconds
_STALE_AFTER = 600.0  # seconds; an older lock is stale even if running processes cannot be inspected
_PROC = Path("/proc")


def remove_stale_locks(git: Git, refs: Sequence[str]) -> tuple[str, ...]:
    """Remove the locks of ``refs``, HEAD and packed-refs that no living git can hold. Return their paths.

    Raises GitFailed.
    """
    common = git_dirs(git)[1]
    lock_files = [common / f"{name}.lock" for name in (*refs, "HEAD", "packed-refs")]
    lock_files += common.glob("worktrees/*/HEAD.lock")
    return tuple(str(path) for path in lock_files if os.path.lexists(path) and _remove_if_stale(path, common))


def index_lock_hint(checkout_git: Git) -> str:
    """Return the command that removes the lock of a checkout's index if no git runs there, else a status.

    Raises GitFailed.
    """
    git_dir, checkout = git_dirs(checkout_git)[0], checkout_git.directory
    lock = git_dir / "index.lock"
    directories = (git_dir, checkout.resolve())
    is_used = not _PROC.is_dir() or any(
        path is None or any(path.is_relative_to(directory) for directory in directories) for path in _git_directories()
    )
    if is_used or not os.path.lexists(lock):
        return shlex.join(["git", "-C", str(checkout), "status"])
    return shlex.join(["rm", str(lock)])


def _remove_if_stale(path: Path, common: Path) -> bool:
    """Remove a lock file if no process can hold it. Return whether it was removed.

    A lock that disappears meanwhile was held. What cannot be removed stays: git reports it.
    """
    began = time.monotonic()
    with suppress(FileNotFoundError, PermissionError, IsADirectoryError):
        # A modification time in the future is no evidence; the time since the first look is.
        while (age := max(time.time() - path.lstat().st_mtime, time.monotonic() - began)) < _MIN_AGE:
            time.sleep(max(0.02, min(0.1, _MIN_AGE - age)))  # until it is old enough; time passes without an event
        before = path.lstat()
        if (age > _STALE_AFTER or not _is_git_running(common)) and path.lstat().st_ino == before.st_ino:
            path.unlink()
            return True
    return False


def _is_git_running(common: Path) -> bool:
    """Return whether a git may be running in this repository; True if that cannot be determined."""
    return not _PROC.is_dir() or any(path is None or _is_in_repository(path, common) for path in _git_directories())


def _git_directories() -> Iterator[Path | None]:
    """Yield the current directory of each running git of this machine, or None if it is not readable."""
    for entry in _PROC.iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            if not entry.name.isdigit() or not (entry / "comm").read_text().startswith("git"):
                continue
            fields = proc_stat.read_stat(entry.name)
            if fields is not None and proc_stat.is_ended(fields):
                continue
            try:
                yield (entry / "cwd").readlink()
            except PermissionError:
                yield None


def _is_in_repository(path: Path, common: Path) -> bool:
    """Return whether a current directory is inside the repository or one of its worktrees."""
    worktrees = list_worktrees(common, skip_unreadable=True)
    tops = [common, common.parent, *(gitfile.parent for gitfile in worktrees.values())]
    return any(path.is_relative_to(top) for top in tops)
