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
from liza.repo.runner import COMMIT, Git, last_words, mending
from liza.rules.errors import GitFailed, Refused
from liza.system import crash_points, small_file

_INTENT, _ASIDE, _LOCK = "liza-move", "liza-move.index", "index.lock"
_TIME_LIMIT = 1800.0
"""Seconds for the files of a checkout, as for those of a slot: a large tree, or git-lfs on a slow line."""
_PATIENCE = 2.0  # seconds for the person's own git to be done with the index; a status takes milliseconds


@dataclass(frozen=True)
class Move:
    """``branch`` is to go from the commit ``expected`` to ``candidate``.

    ``turn_back``: whether the branch goes back to ``expected`` where the person's files are in the way. Not where
    ``expected`` is merely what an absent checkout was left at: others have merged onto it since.
    """

    branch: str
    expected: str
    candidate: str
    turn_back: bool = True


def carry(there: Git, move: Move) -> tuple[str, str]:
    """Move the branch, and the files and the index of ``there``, the work tree that has it checked out.

    ``moved``; ``lost`` where the branch was elsewhere by then; ``waiting``, with git's reason, where the person's
    files are in the way. Nothing has changed but for ``moved``. Raises GitFailed.
    """
    there = _patient(there)
    own = git_dirs(there)[0]
    if not _begin(own, move):
        return "waiting", f"another git holds {own / _LOCK}"
    try:
        if not _stands(there, move, move.expected):
            return "lost", ""
        reason = _files(there, own, move)
        if reason:
            return "waiting", reason
        if not _swap(there, move.branch, move.expected, move.candidate):
            return "lost", ""
        _take_index(own)
        return "moved", ""
    finally:
        settle(there)


def catch_up(there: Git, move: Move) -> tuple[str, str]:
    """Bring along a work tree in which somebody checked the branch out while it moved; else turn the branch back, if
    ``move`` allows that.

    As ``carry``. Nothing happens where its index has the candidate's files already. Raises GitFailed.
    """
    there = _patient(there)
    own = git_dirs(there)[0]
    if not checkout_files.behind(there, move.expected, move.candidate):
        return "moved", ""
    if not _begin(own, move):
        raise GitFailed(f"another git holds {own / _LOCK}", "git status")
    try:
        if not _stands(there, move, move.candidate):
            return "moved", ""
        reason = _files(there, own, move)
        if not reason:
            _take_index(own)
            return "moved", ""
        if not move.turn_back:
            return "waiting", reason
        return ("waiting" if _swap(there, move.branch, move.candidate, move.expected) else "moved"), reason
    finally:
        settle(there)


def under_way(git: Git) -> bool:
    """Whether a move was begun in some work tree of the repository, and not ended. Raises GitFailed."""
    common = git_dirs(git)[1]
    return (common / _INTENT).exists() or any(common.glob(f"worktrees/*/{_INTENT}"))


def settle(there: Git) -> bool:
    """Finish what a dead move left in a work tree, or take it back; whether there was something. Repeatable.

    A branch that had moved takes its files along, unless the person has changed one of them since: then it goes back.
    Raises Refused while a git of the person's is at work there, GitFailed.
    """
    there = _patient(there)
    own = git_dirs(there)[0]
    move = _intent(own)
    if move is None:
        return False
    _lock_again(own)
    here = there.run("symbolic-ref", "-q", "HEAD", codes=(0, 1)).stdout.decode().strip()
    if here == f"refs/heads/{move.branch}":
        _complete(there, own, move)
    _end(own)
    return True


def _complete(there: Git, own: Path, move: Move) -> None:
    ends = (move.expected, move.candidate)
    there_is = _has_arrived(there, move)
    if there_is and checkout_files.foreign(there, _fresh(own), *ends):
        if not move.turn_back:
            return
        there_is = not _swap(there, move.branch, move.candidate, move.expected)
    checkout_files.bring(there, _fresh(own), *(ends if there_is else ends[::-1]))
    _take_index(own)


def _has_arrived(there: Git, move: Move) -> bool:
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


def _patient(there: Git) -> Git:
    """git with time enough for the files of a checkout, and never with less than it was given."""
    return there.within(max(_TIME_LIMIT, there.timeout))


def _begin(own: Path, move: Move) -> bool:
    """Lay the intent down and lock the index with it; whether that could be done."""
    intent, lock = own / _INTENT, own / _LOCK
    aside = own / f"{_INTENT}.{os.getpid()}"
    with aside.open("w") as stream:
        json.dump(asdict(move), stream)
        stream.flush()
        os.fsync(stream.fileno())
    aside.replace(intent)
    crash_points.point("move", "intent")
    end = time.monotonic() + _PATIENCE
    while not _linked(intent, lock):
        if time.monotonic() >= end:
            intent.unlink()
            return False
        time.sleep(0.02)  # no event tells that another git has let go of its lock
    crash_points.point("move", "locked")
    return True


def _linked(intent: Path, lock: Path) -> bool:
    """git takes its locks in the same way: who creates the name has it. A link has its content from the start."""
    with suppress(FileExistsError):
        os.link(intent, lock)
        return True
    return False


def _lock_again(own: Path) -> None:
    """The lock of the intent, which a person may have removed, as git advises."""
    intent, lock = own / _INTENT, own / _LOCK
    with suppress(FileNotFoundError):
        if intent.samefile(lock):
            return
    if not _linked(intent, lock):
        raise Refused(f"a merge has to be settled in {own}, and another git holds {lock}", "git status")


def _intent(own: Path) -> Move | None:
    try:
        move = Move(**json.loads(small_file.read(own / _INTENT)))
        if not COMMIT.fullmatch(move.expected) or not COMMIT.fullmatch(move.candidate):
            raise ValueError("it names no commits")
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, RecursionError) as error:
        # It is written whole or not at all, so this one is nobody's move.
        hint = shlex.join(["rm", str(own / _INTENT)])
        raise GitFailed(f"{own / _INTENT} cannot be read: {error}", hint) from error
    return move


def _stands(there: Git, move: Move, commit: str) -> bool:
    """Whether the branch is still checked out here, and at ``commit``."""
    head = there.run("symbolic-ref", "-q", "HEAD", codes=(0, 1)).stdout.decode().strip()
    tip = there.run("rev-parse", "-q", "--verify", f"refs/heads/{move.branch}", codes=(0, 1)).stdout.decode().strip()
    return head == f"refs/heads/{move.branch}" and tip == commit


def _files(there: Git, own: Path, move: Move) -> str:
    """Bring the files from one commit to the other, and an index aside; git's reason where it would not."""
    aside = there.having(GIT_INDEX_FILE=str(_fresh(own)))
    # 1 says that files are changed, 128 that git would not; anything else is a git that was killed.
    aside.run("update-index", "-q", "--refresh", codes=(0, 1))
    done = aside.run("read-tree", "-m", "-u", move.expected, move.candidate, codes=(0, 1, 128))
    crash_points.point("move", "files")
    return last_words(done) if done.code else ""


def _fresh(own: Path) -> Path:
    """A copy of the index, with its times: by them git knows which files may have changed since it was written."""
    aside = own / _ASIDE
    aside.with_name(f"{_ASIDE}.lock").unlink(missing_ok=True)
    if (own / "index").exists():
        shutil.copy2(own / "index", aside)
    return aside


def _swap(there: Git, branch: str, old: str, new: str) -> bool:
    """Move the branch from ``old`` to ``new``; False where it is elsewhere. Raises GitFailed."""
    done = there.run("update-ref", "-m", f"liza: {new[:10]}", f"refs/heads/{branch}", new, old)
    crash_points.point("move", "branch")
    tip = there.run("rev-parse", "-q", "--verify", f"refs/heads/{branch}", codes=(0, 1)).stdout.decode().strip()
    if done.code != 0 and tip == old:
        raise GitFailed(f"{branch} could not be moved to {new[:10]}: {last_words(done)}", mending(done.stderr))
    return tip == new


def _take_index(own: Path) -> None:
    (own / _ASIDE).replace(own / "index")
    crash_points.point("move", "index")


def _end(own: Path) -> None:
    (own / _ASIDE).unlink(missing_ok=True)
    (own / _LOCK).unlink()
    crash_points.point("move", "unlocked")
    (own / _INTENT).unlink()
    for left in own.glob(f"{_INTENT}.*"):
        left.unlink(missing_ok=True)
