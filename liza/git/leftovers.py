"""Remove what killed processes left in the repository: half-made slots, lock files, temporary files; and what prevents
that a slot is emptied: directories without write permission, and files of another user, which tests left.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from liza.git import slot_records
from liza.git.git_config import git_dirs, list_worktrees
from liza.git.runner import Git
from liza.model.errors import GitFailed, LockTimeout, SystemRefused
from liza.model.paths import Paths
from liza.system import files, proc_stat
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
    return remove_stale_locks(git, names)


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
    records = (paths.slots_record, paths.pins, info / "exclude", info / "attributes")
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
