"""Move a branch together with the worktree that has it checked out, so that a killed move can be completed or undone.

git's own fast-forward, if killed, leaves an empty ``index.lock`` and a mix of old and new files, with no record of what
was intended. Here the intent file is written first, in the git directory of the worktree. It is a write-ahead log, and
its hard link ``index.lock`` locks the index: until the move is recovered no git can commit there. The order is: intent,
lock, files, branch, index, unlock.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import time
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from liza.git import checkout_files, leftovers
from liza.git.git_config import git_dirs
from liza.git.rules.git_operations import BlockingFile
from liza.git.runner import COMMIT, Git, find_remedy, summarize_error
from liza.model.errors import GitFailed, Refused
from liza.model.value_classes import Value, asdict
from liza.system import crash_points, untrusted_files

_INTENT_FILE, _INDEX_COPY, _INDEX_LOCK = "liza-move", "liza-move.index", "index.lock"
_TIME_LIMIT = 1800.0
"""Seconds for the files of a checkout: a large tree, or git-lfs on a slow connection."""
_LOCK_TIMEOUT = 2.0  # seconds to wait for the person's own git to release the index; a status takes milliseconds


class MoveOutcome(StrEnum):
    """Outcome of a move of a branch."""

    MOVED = "moved"
    """It is at the candidate."""
    LOST = "lost"
    """It was at another commit than expected."""
    WAITING = "waiting"
    """Files of a person in its checkout are in the way."""


class AdvanceResult(Value):
    """Result of moving a branch.

    LOST: the candidate must be built again. WAITING: ``blocking`` is in the way in ``checkout``; ``reason`` is git's
    message if git refuses for another reason.
    """

    outcome: MoveOutcome
    blocking: tuple[BlockingFile, ...] = ()
    reason: str = ""
    checkout: Path | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """The names of what is in the way."""
        return tuple(file.name for file in self.blocking)


class BranchMove(Value):
    """A move of ``branch`` from the commit ``expected`` to ``candidate``."""

    branch: str
    expected: str
    candidate: str


def move_branch(checkout_git: Git, move: BranchMove) -> AdvanceResult:
    """Move the branch, and the files and the index of the worktree that has it checked out.

    Only MOVED changes anything. Raises GitFailed.
    """
    checkout_git = _with_long_timeout(checkout_git)
    git_dir = git_dirs(checkout_git)[0]
    if not _lock_with_intent(git_dir, move):
        return AdvanceResult(MoveOutcome.WAITING, (), _locked_reason(git_dir), checkout_git.directory)
    try:
        if not _is_branch_at(checkout_git, move, move.expected):
            return AdvanceResult(MoveOutcome.LOST)
        refused = _update_files(checkout_git, git_dir, move)
        if refused is not None:
            if refused.blocking:
                _unlock(git_dir)  # nothing was touched, so there is nothing to undo
            return refused
        if not _update_ref(checkout_git, move.branch, move.expected, move.candidate):
            return AdvanceResult(MoveOutcome.LOST)
        _install_index(git_dir)
        return AdvanceResult(MoveOutcome.MOVED, checkout=checkout_git.directory)
    finally:
        recover_move(checkout_git)


def catch_up_checkout(checkout_git: Git, move: BranchMove) -> AdvanceResult:
    """Update a worktree that checked the branch out while it moved, or move the branch back if files are in the way.

    Does nothing if the index has the candidate's files already. Raises GitFailed.
    """
    moved = AdvanceResult(MoveOutcome.MOVED, checkout=checkout_git.directory)
    checkout_git = _with_long_timeout(checkout_git)
    git_dir = git_dirs(checkout_git)[0]
    if not checkout_files.is_behind(checkout_git, move.expected, move.candidate):
        return moved
    if not _lock_with_intent(git_dir, move):
        raise GitFailed(_locked_reason(git_dir), leftovers.index_lock_hint(checkout_git))
    try:
        if not _is_branch_at(checkout_git, move, move.candidate):
            return moved
        refused = _update_files(checkout_git, git_dir, move)
        if refused is None:
            _install_index(git_dir)
            return moved
        if not _update_ref(checkout_git, move.branch, move.candidate, move.expected):
            return moved
        if refused.blocking:
            _unlock(git_dir)  # nothing was touched, so there is nothing to undo
        return refused
    finally:
        recover_move(checkout_git)


def has_unfinished_move(git: Git) -> bool:
    """Return whether any worktree of the repository has an intent file. Raises GitFailed."""
    common = git_dirs(git)[1]
    return (common / _INTENT_FILE).exists() or any(common.glob(f"worktrees/*/{_INTENT_FILE}"))


def recover_move(checkout_git: Git) -> bool:
    """Complete or undo a killed move in a worktree. Return whether there was one. Idempotent.

    If the branch has moved, its files follow. If the person has changed one of them since, the branch goes back
    instead. Raises Refused while another git holds the index lock, GitFailed.
    """
    checkout_git = _with_long_timeout(checkout_git)
    git_dir = git_dirs(checkout_git)[0]
    move = _read_intent(git_dir)
    if move is None:
        return False
    _relock(checkout_git, git_dir)
    head = checkout_git.run("symbolic-ref", "-q", "HEAD", codes=(0, 1)).stdout.decode().strip()
    if head == f"refs/heads/{move.branch}":
        _complete_move(checkout_git, git_dir, move)
    _unlock(git_dir)
    return True


def _complete_move(checkout_git: Git, git_dir: Path, move: BranchMove) -> None:
    """Bring files and index to the commit that the branch has, or move the branch back."""
    ends = (move.expected, move.candidate)
    has_arrived = _has_arrived(checkout_git, move)
    if has_arrived and checkout_files.find_user_changes(checkout_git, _copy_index(git_dir), *ends):
        has_arrived = not _update_ref(checkout_git, move.branch, move.candidate, move.expected)
    checkout_files.update_files(checkout_git, _copy_index(git_dir), *(ends if has_arrived else ends[::-1]))
    _install_index(git_dir)


def _has_arrived(checkout_git: Git, move: BranchMove) -> bool:
    """Return whether the branch has moved to the candidate.

    In a move back (the candidate is an ancestor) both commits are in the branch until it has moved. A branch that was
    deleted has neither; then its files are those of ``expected``.
    """
    ref = f"refs/heads/{move.branch}"
    tip = checkout_git.find_commit(ref)
    if not tip or tip == move.expected:
        return False
    if tip == move.candidate:
        return True
    if checkout_git.ok("merge-base", "--is-ancestor", move.candidate, move.expected):
        # A move back: if the tip contains `expected`, the branch has not moved.
        return not checkout_git.ok("merge-base", "--is-ancestor", move.expected, tip)
    return checkout_git.ok("merge-base", "--is-ancestor", move.candidate, tip)


def _with_long_timeout(checkout_git: Git) -> Git:
    """Return git with a timeout long enough for a checkout, and never shorter than the given one."""
    return checkout_git.with_timeout(max(_TIME_LIMIT, checkout_git.timeout))


def _lock_with_intent(git_dir: Path, move: BranchMove) -> bool:
    """Write the intent file and lock the index with a hard link to it. Return whether that succeeded."""
    intent, lock = git_dir / _INTENT_FILE, git_dir / _INDEX_LOCK
    temporary = git_dir / f"{_INTENT_FILE}.{os.getpid()}"
    with temporary.open("w") as stream:
        json.dump(asdict(move), stream)
        stream.flush()
        os.fsync(stream.fileno())
    # The intent is durable before the lock exists: a lock without an intent cannot be recovered.
    temporary.replace(intent)
    crash_points.point("move", "intent")
    end = time.monotonic() + _LOCK_TIMEOUT
    while not _try_lock(intent, lock):
        if time.monotonic() >= end:
            intent.unlink()
            return False
        time.sleep(0.02)  # there is no event for the release of a git lock
    crash_points.point("move", "locked")
    return True


def _try_lock(intent: Path, lock: Path) -> bool:
    """Create the lock file, as git does: the process that creates the name holds the lock.

    A hard link is atomic and has its content from the start.
    """
    with suppress(FileExistsError):
        os.link(intent, lock)
        return True
    return False


def _relock(checkout_git: Git, git_dir: Path) -> None:
    """Take the lock of the intent again: a person may have removed it, as git advises. Raises Refused."""
    intent, lock = git_dir / _INTENT_FILE, git_dir / _INDEX_LOCK
    with suppress(FileNotFoundError):
        if intent.samefile(lock):
            return
    if not _try_lock(intent, lock):
        message = f"a killed merge in {git_dir} cannot be recovered: {_locked_reason(git_dir)}"
        raise Refused(message, leftovers.index_lock_hint(checkout_git))


def _locked_reason(git_dir: Path) -> str:
    return f"another git holds {git_dir / _INDEX_LOCK}, or left it when it was killed"


def _read_intent(git_dir: Path) -> BranchMove | None:
    """Return the recorded move, or None without an intent file. Raises GitFailed if it is invalid."""
    try:
        move = BranchMove(**json.loads(untrusted_files.read_record(git_dir / _INTENT_FILE)))
        if not COMMIT.fullmatch(move.expected) or not COMMIT.fullmatch(move.candidate):
            raise ValueError("it does not name commits")
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, RecursionError) as error:
        # Liza writes it atomically, so Liza did not write this one.
        hint = shlex.join(["rm", str(git_dir / _INTENT_FILE)])
        raise GitFailed(f"{git_dir / _INTENT_FILE} cannot be read: {error}", hint) from error
    return move


def _is_branch_at(checkout_git: Git, move: BranchMove, commit: str) -> bool:
    """Return whether the branch is still checked out in this worktree, and at ``commit``."""
    head = checkout_git.run("symbolic-ref", "-q", "HEAD", codes=(0, 1)).stdout.decode().strip()
    tip = checkout_git.find_commit(f"refs/heads/{move.branch}")
    return head == f"refs/heads/{move.branch}" and tip == commit


def _update_files(checkout_git: Git, git_dir: Path, move: BranchMove) -> AdvanceResult | None:
    """Bring the files, and a copy of the index, from one commit to the other. Return None, or the result if it failed.

    If a person's files are in the way, nothing is touched. Raises GitFailed.
    """
    state = checkout_files.read_checkout(checkout_git, move.expected)
    files = checkout_files.find_blocking_files(checkout_git, state, move.expected, move.candidate)
    if files:
        return AdvanceResult(MoveOutcome.WAITING, files, "", checkout_git.directory)
    git_copy = checkout_git.with_environment(GIT_INDEX_FILE=str(_copy_index(git_dir)))
    # Exit status 1: files are changed; 128: git refuses; any other: git was killed.
    git_copy.run("update-index", "-q", "--refresh", codes=(0, 1))
    result = git_copy.run("read-tree", "-m", "-u", move.expected, move.candidate, codes=(0, 1, 128))
    crash_points.point("move", "files")
    if not result.code:
        return None
    return AdvanceResult(MoveOutcome.WAITING, (), summarize_error(result), checkout_git.directory)


def _copy_index(git_dir: Path) -> Path:
    """Copy the index with its file times: git uses them to know which files may have changed since."""
    copy = git_dir / _INDEX_COPY
    copy.with_name(f"{_INDEX_COPY}.lock").unlink(missing_ok=True)
    if (git_dir / "index").exists():
        shutil.copy2(git_dir / "index", copy)
    return copy


def _update_ref(checkout_git: Git, branch: str, old: str, new: str) -> bool:
    """Move the branch from ``old`` to ``new``. Return False if it is at another commit. Raises GitFailed."""
    result = checkout_git.run("update-ref", "-m", f"liza: {new[:10]}", f"refs/heads/{branch}", new, old)
    crash_points.point("move", "branch")
    tip = checkout_git.find_commit(f"refs/heads/{branch}")
    if result.code != 0 and tip == old:
        raise GitFailed(
            f"{branch} could not be moved to {new[:10]}: {summarize_error(result)}", find_remedy(result.stderr)
        )
    return tip == new


def _install_index(git_dir: Path) -> None:
    """Replace the index by the updated copy."""
    (git_dir / _INDEX_COPY).replace(git_dir / "index")
    crash_points.point("move", "index")


def _unlock(git_dir: Path) -> None:
    # The lock before the intent: an intent without a lock is recovered, a lock without an intent would stay.
    """Remove the index copy, the lock and the intent."""
    (git_dir / _INDEX_COPY).unlink(missing_ok=True)
    (git_dir / _INDEX_LOCK).unlink()
    crash_points.point("move", "unlocked")
    (git_dir / _INTENT_FILE).unlink()
    for path in git_dir.glob(f"{_INTENT_FILE}.*"):
        path.unlink(missing_ok=True)
