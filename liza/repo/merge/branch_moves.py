"""Moving a branch together with the work tree that has it checked out, so that after any death it is settled.

git's own fast-forward, killed half way, leaves an empty ``index.lock`` and files of both sides, and nothing that tells
whose they are. Here the intent is laid down first, in the git directory of the work tree, and is itself the lock on
the index: until it is settled nobody commits there, and whoever finds it knows what was to become of which files.
The order is: intent, lock, files, branch, index, unlock.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from liza.repo.config_pins import git_dirs
from liza.repo.merge import checkout_files
from liza.repo.runner import COMMIT, Git, lock_removal_command, summarize_error
from liza.rules.errors import GitFailed, Refused
from liza.system import crash_points, small_file

_INTENT_FILE, _INDEX_COPY, _INDEX_LOCK = "liza-move", "liza-move.index", "index.lock"
_TIME_LIMIT = 1800.0
"""Seconds for the files of a checkout, as for those of a slot: a large tree, or git-lfs on a slow line."""
_LOCK_TIMEOUT = 2.0  # seconds for the person's own git to be done with the index; a status takes milliseconds


@dataclass(frozen=True)
class BranchMove:
    """``branch`` is to go from the commit ``expected`` to ``candidate``.

    ``turn_back``: whether the branch goes back to ``expected`` where the person's files are in the way. Not where
    ``expected`` is merely what an absent checkout was left at: others have merged onto it since.
    """

    branch: str
    expected: str
    candidate: str
    turn_back: bool = True


def move_branch(there: Git, move: BranchMove) -> tuple[str, str]:
    """Move the branch, and the files and the index of ``there``, the work tree that has it checked out.

    ``moved``; ``lost`` where the branch was elsewhere by then; ``waiting``, with git's reason, where the person's
    files are in the way. Nothing has changed but for ``moved``. Raises GitFailed.
    """
    there = _with_long_timeout(there)
    own = git_dirs(there)[0]
    if not _lock_with_intent(own, move):
        return "waiting", f"another git holds {own / _INDEX_LOCK}"
    try:
        if not _is_branch_at(there, move, move.expected):
            return "lost", ""
        reason = _update_files(there, own, move)
        if reason:
            return "waiting", reason
        if not _update_ref(there, move.branch, move.expected, move.candidate):
            return "lost", ""
        _install_index(own)
        return "moved", ""
    finally:
        recover_move(there)


def catch_up_checkout(there: Git, move: BranchMove) -> tuple[str, str]:
    """Bring along a work tree in which somebody checked the branch out while it moved; else turn the branch back, if
    ``move`` allows that.

    As ``carry``. Nothing happens where its index has the candidate's files already. Raises GitFailed.
    """
    there = _with_long_timeout(there)
    own = git_dirs(there)[0]
    if not checkout_files.is_behind(there, move.expected, move.candidate):
        return "moved", ""
    if not _lock_with_intent(own, move):
        raise GitFailed(f"another git holds {own / _INDEX_LOCK}", "git status")
    try:
        if not _is_branch_at(there, move, move.candidate):
            return "moved", ""
        reason = _update_files(there, own, move)
        if not reason:
            _install_index(own)
            return "moved", ""
        if not move.turn_back:
            return "waiting", reason
        return ("waiting" if _update_ref(there, move.branch, move.candidate, move.expected) else "moved"), reason
    finally:
        recover_move(there)


def has_unfinished_move(git: Git) -> bool:
    """Whether a move was begun in some work tree of the repository, and not ended. Raises GitFailed."""
    common = git_dirs(git)[1]
    return (common / _INTENT_FILE).exists() or any(common.glob(f"worktrees/*/{_INTENT_FILE}"))


def recover_move(there: Git) -> bool:
    """Finish what a dead move left in a work tree, or take it back; whether there was something. Repeatable.

    A branch that had moved takes its files along, unless the person has changed one of them since: then it goes back.
    Raises Refused while a git of the person's is at work there, GitFailed.
    """
    there = _with_long_timeout(there)
    own = git_dirs(there)[0]
    move = _read_intent(own)
    if move is None:
        return False
    _relock(own)
    here = there.run("symbolic-ref", "-q", "HEAD", codes=(0, 1)).stdout.decode().strip()
    if here == f"refs/heads/{move.branch}":
        _complete_move(there, own, move)
    _unlock(own)
    return True


def _complete_move(there: Git, own: Path, move: BranchMove) -> None:
    ends = (move.expected, move.candidate)
    there_is = _has_arrived(there, move)
    if there_is and checkout_files.find_user_changes(there, _copy_index(own), *ends):
        if not move.turn_back:
            return
        there_is = not _update_ref(there, move.branch, move.candidate, move.expected)
    checkout_files.update_files(there, _copy_index(own), *(ends if there_is else ends[::-1]))
    _install_index(own)


def _has_arrived(there: Git, move: BranchMove) -> bool:
    """Whether the branch has the candidate. One that goes back has both commits until it has moved; one that was
    deleted meanwhile has neither, and its files are those of before."""
    ref = f"refs/heads/{move.branch}"
    tip = there.run("rev-parse", "-q", "--verify", ref, codes=(0, 1)).stdout.decode().strip()
    if not tip or tip == move.expected:
        return False
    if tip == move.candidate:
        return True
    if there.ok("merge-base", "--is-ancestor", move.candidate, move.expected):
        # A move back: whoever has built on the commit that it was to leave has not seen it leave.
        return not there.ok("merge-base", "--is-ancestor", move.expected, tip)
    return there.ok("merge-base", "--is-ancestor", move.candidate, tip)


def _with_long_timeout(there: Git) -> Git:
    """git with time enough for the files of a checkout, and never with less than it was given."""
    return there.with_timeout(max(_TIME_LIMIT, there.timeout))


def _lock_with_intent(own: Path, move: BranchMove) -> bool:
    """Lay the intent down and lock the index with it; whether that could be done."""
    intent, lock = own / _INTENT_FILE, own / _INDEX_LOCK
    aside = own / f"{_INTENT_FILE}.{os.getpid()}"
    with aside.open("w") as stream:
        json.dump(asdict(move), stream)
        stream.flush()
        os.fsync(stream.fileno())
    aside.replace(intent)
    crash_points.point("move", "intent")
    end = time.monotonic() + _LOCK_TIMEOUT
    while not _try_lock(intent, lock):
        if time.monotonic() >= end:
            intent.unlink()
            return False
        time.sleep(0.02)  # no event tells that another git has let go of its lock
    crash_points.point("move", "locked")
    return True


def _try_lock(intent: Path, lock: Path) -> bool:
    """git takes its locks in the same way: who creates the name has it. A link has its content from the start."""
    with suppress(FileExistsError):
        os.link(intent, lock)
        return True
    return False


def _relock(own: Path) -> None:
    """The lock of the intent, which a person may have removed, as git advises."""
    intent, lock = own / _INTENT_FILE, own / _INDEX_LOCK
    with suppress(FileNotFoundError):
        if intent.samefile(lock):
            return
    if not _try_lock(intent, lock):
        raise Refused(f"a merge has to be settled in {own}, and another git holds {lock}", "git status")


def _read_intent(own: Path) -> BranchMove | None:
    try:
        move = BranchMove(**json.loads(small_file.read_small_file(own / _INTENT_FILE)))
        if not COMMIT.fullmatch(move.expected) or not COMMIT.fullmatch(move.candidate):
            raise ValueError("it names no commits")
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, RecursionError) as error:
        # It is written whole or not at all, so this one is nobody's move.
        hint = shlex.join(["rm", str(own / _INTENT_FILE)])
        raise GitFailed(f"{own / _INTENT_FILE} cannot be read: {error}", hint) from error
    return move


def _is_branch_at(there: Git, move: BranchMove, commit: str) -> bool:
    """Whether the branch is still checked out here, and at ``commit``."""
    head = there.run("symbolic-ref", "-q", "HEAD", codes=(0, 1)).stdout.decode().strip()
    tip = there.run("rev-parse", "-q", "--verify", f"refs/heads/{move.branch}", codes=(0, 1)).stdout.decode().strip()
    return head == f"refs/heads/{move.branch}" and tip == commit


def _update_files(there: Git, own: Path, move: BranchMove) -> str:
    """Bring the files from one commit to the other, and an index aside; git's reason where it would not."""
    aside = there.with_environment(GIT_INDEX_FILE=str(_copy_index(own)))
    # 1 says that files are changed, 128 that git would not; anything else is a git that was killed.
    aside.run("update-index", "-q", "--refresh", codes=(0, 1))
    done = aside.run("read-tree", "-m", "-u", move.expected, move.candidate, codes=(0, 1, 128))
    crash_points.point("move", "files")
    return summarize_error(done) if done.code else ""


def _copy_index(own: Path) -> Path:
    """A copy of the index, with its times: by them git knows which files may have changed since it was written."""
    aside = own / _INDEX_COPY
    aside.with_name(f"{_INDEX_COPY}.lock").unlink(missing_ok=True)
    if (own / "index").exists():
        shutil.copy2(own / "index", aside)
    return aside


def _update_ref(there: Git, branch: str, old: str, new: str) -> bool:
    """Move the branch from ``old`` to ``new``; False where it is elsewhere. Raises GitFailed."""
    done = there.run("update-ref", "-m", f"liza: {new[:10]}", f"refs/heads/{branch}", new, old)
    crash_points.point("move", "branch")
    tip = there.run("rev-parse", "-q", "--verify", f"refs/heads/{branch}", codes=(0, 1)).stdout.decode().strip()
    if done.code != 0 and tip == old:
        raise GitFailed(
            f"{branch} could not be moved to {new[:10]}: {summarize_error(done)}", lock_removal_command(done.stderr)
        )
    return tip == new


def _install_index(own: Path) -> None:
    (own / _INDEX_COPY).replace(own / "index")
    crash_points.point("move", "index")


def _unlock(own: Path) -> None:
    (own / _INDEX_COPY).unlink(missing_ok=True)
    (own / _INDEX_LOCK).unlink()
    crash_points.point("move", "unlocked")
    (own / _INTENT_FILE).unlink()
    for left in own.glob(f"{_INTENT_FILE}.*"):
        left.unlink(missing_ok=True)
