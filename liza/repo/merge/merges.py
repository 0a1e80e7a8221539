"""Merging without a checkout: a candidate that can be tested first, and a branch that moves to it or does not move."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from liza.repo import stale_locks, symbolic_refs
from liza.repo.config_pins import git_dirs
from liza.repo.merge import absent_checkouts, branch_moves, merge_refs
from liza.repo.merge.branch_moves import BranchMove
from liza.repo.runner import Git, lock_removal_command, summarize_error
from liza.repo.survey import list_changed_files
from liza.rules.errors import GitFailed, MergeConflict, Missing


@dataclass(frozen=True)
class AdvanceResult:
    """What became of moving a branch.

    ``moved``: it stands at the candidate. ``lost``: it had moved elsewhere before, the candidate must be built anew.
    ``waiting``: a checkout of it stands in the way, with the ``files`` that do and git's ``reason``.
    """

    outcome: Literal["moved", "lost", "waiting"]
    files: tuple[str, ...] = ()
    reason: str = ""
    checkout: Path | None = None


LAST_INTEGRATION_REF = "refs/liza/integration"
"""Where Liza left integration the last time that it moved it."""


def candidate_ref(task: str) -> str:
    """The ref that keeps a task's candidate from being collected."""
    return f"refs/liza/candidates/{task}"


def build_candidate(git: Git, commit: str, expected: str, message: str, task: str) -> str:
    """Merge ``commit`` into ``expected``, the tip of integration, without touching either; the merge commit's name.

    Raises MergeConflict with the names of the files, GitFailed.
    """
    # Attributes are taken from the branch that is merged into, not from what a person has checked out.
    merging = git.with_environment(GIT_ATTR_SOURCE=expected)
    tree, files = merge_trees(merging, expected, commit)
    if files:
        shown = ", ".join(files[:5]) + (f" and {len(files) - 5} more" if len(files) > 5 else "")
        raise MergeConflict(f"{commit[:10]} conflicts with {expected[:10]} in {shown}", files)
    words = ("commit-tree", tree, "-p", expected, "-p", commit, "-F", "-")
    made = git.with_identity().out(*words, stdin=message if message.endswith("\n") else message + "\n")
    git.out("update-ref", candidate_ref(task), made)
    return made


def merge_trees(git: Git, ours: str, theirs: str) -> tuple[str, tuple[str, ...]]:
    """The tree of two commits merged, and the names of the files that conflict in it. Raises GitFailed."""
    done = git.run("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs)
    tree, *names = done.stdout.decode("utf-8", "surrogateescape").removesuffix("\0").split("\0")
    # Exit 1 is a conflict, and also "not something we can merge": only the first has a tree.
    if done.code not in (0, 1) or not tree:
        what = f"git merge-tree {ours[:10]} {theirs[:10]} failed ({done.code}): {summarize_error(done)}"
        raise GitFailed(what, lock_removal_command(done.stderr))
    return tree, tuple(dict.fromkeys(name for name in names if name))


def is_merge_of(git: Git, made: str, expected: str, commit: str) -> bool:
    """Whether ``made`` is the merge of ``commit`` into ``expected``, and has nothing else in it. Raises GitFailed."""
    known = git.run("rev-list", "--no-walk", "--format=%T %P", "--end-of-options", made)
    lines = known.stdout.decode().splitlines()
    if known.code != 0 or not lines:
        return False
    tree, *parents = lines[-1].split(" ")
    if parents != [expected, commit]:
        return False
    return merge_trees(git.with_environment(GIT_ATTR_SOURCE=expected), expected, commit) == (tree, ())


def delete_candidate(git: Git, task: str, *, closed: bool = False) -> None:
    """Let the candidate of a task go, with the record that it was tested; nothing happens where there is none.

    Of a task that is ``closed`` the reviewed commit goes as well. Raises GitFailed.
    """
    refs = [candidate_ref(task), merge_refs.tested_ref(task), *([merge_refs.review_ref(task)] if closed else [])]
    git.out("update-ref", "--stdin", stdin="".join(f"delete {ref}\n" for ref in refs))


def contains(git: Git, branch: str, commit: str) -> bool:
    """Whether ``commit`` is in ``branch``. Raises GitFailed where one of them does not exist."""
    return git.ok("merge-base", "--is-ancestor", commit, f"refs/heads/{branch}")


def branch_tip(git: Git, branch: str) -> str | None:
    """The commit that a branch stands at; None where there is no such branch. Raises GitFailed."""
    done = git.run("rev-parse", "-q", "--verify", f"refs/heads/{branch}^{{commit}}", codes=(0, 1))
    return done.stdout.decode().strip() or None


@dataclass(frozen=True)
class Branch:
    """A branch: the commit it stands at, and the work tree that has it checked out."""

    commit: str
    checkout: Path | None


def find_branches(git: Git, *names: str) -> dict[str, Branch]:
    """Those of the branches ``names`` that there are, by name. Raises GitFailed."""
    form = "--format=%(refname)%00%(objectname)%00%(worktreepath)"
    rows = git.out("for-each-ref", form, *(f"refs/heads/{name}" for name in names)).split("\n")
    found = [row.split("\0") for row in rows if row.count("\0") == 2]
    return {
        ref.removeprefix("refs/heads/"): Branch(commit, Path(place) if place else None) for ref, commit, place in found
    }


def list_checkouts(git: Git) -> dict[Path, str | None]:
    """Every work tree of the repository that is there, with the branch it has checked out. Raises GitFailed.

    A locked one that is absent (git keeps its record, for a portable drive) is left out: see ``away``.
    """
    found: dict[Path, str | None] = {}
    place = Path()
    for word in git.names("worktree", "list", "--porcelain", "-z"):
        kind, _, value = word.partition(" ")
        if kind == "worktree":
            place = Path(value)
            found[place] = None
        elif kind == "branch":
            found[place] = value.removeprefix("refs/heads/")
        elif kind in ("bare", "prunable"):
            found.pop(place, None)
    return {place: branch for place, branch in found.items() if place.is_dir()}


def advance_branch(git: Git, branch: str, candidate: str, expected: str) -> AdvanceResult:
    """Move ``branch`` from ``expected`` to ``candidate``: both or nothing, with the checkout of it, if there is one.

    Only for a candidate whose tests passed: where somebody has moved the branch onto it already, that is ``moved``.
    Raises GitFailed when git fails for another reason than those an Advance names, Missing for a symbolic ref.
    """
    ref = f"refs/heads/{branch}"
    named = symbolic_refs.symbolic_target(git, ref)
    if named is not None:
        raise Missing(symbolic_refs.describe_symbolic(ref, named), symbolic_refs.plain_ref_command(ref, expected))
    if branch_tip(git, branch) == candidate:
        return sync_checkout(git, branch, candidate, expected)
    absent_checkouts.record_absent(git, branch, expected)
    place = _find_checkout(git, branch)
    if place is not None:
        return _advance_in_checkout(git, place, branch, candidate, expected)
    words = ("update-ref", "-m", f"liza: {candidate[:10]}", f"refs/heads/{branch}", candidate, expected)
    done = git.run(*words)
    if done.code != 0:
        now = branch_tip(git, branch)
        if now == expected:
            raise GitFailed(
                f"{branch} could not be moved to {candidate[:10]}: {summarize_error(done)}",
                lock_removal_command(done.stderr),
            )
        # A git that was killed after its last act has moved it all the same.
        if now != candidate or done.code > 0:
            return AdvanceResult("lost")
    return sync_checkout(git, branch, candidate, expected)


def sync_checkout(git: Git, branch: str, candidate: str, expected: str) -> AdvanceResult:
    """Bring along a checkout that somebody made of ``branch`` while it moved from ``expected`` to ``candidate``.

    Repeatable: where the files are those of the candidate already, nothing happens. Where the person's files stand in
    the way, the branch goes back, so that their next commit does not undo the merge. Raises GitFailed.
    """
    place = _find_checkout(git, branch)
    if place is None:
        return AdvanceResult("moved")
    outcome, reason = branch_moves.catch_up_checkout(git.at(place), BranchMove(branch, expected, candidate))
    if outcome == "waiting":
        return AdvanceResult("waiting", _find_blocking_files(git.at(place), candidate, expected), reason, place)
    return AdvanceResult("moved", checkout=place)


def restore_branch(git: Git, branch: str, commit: str) -> bool:
    """Have ``branch`` at ``commit`` again, from which it was taken away during tests; whether it is there.

    Not where files of a person's checkout are in the way. Raises GitFailed.
    """
    now = branch_tip(git, branch)
    if now is not None:
        return now == commit or move_branch_back(git, branch, now, commit)
    # Whoever has it checked out keeps HEAD, index and files: they are those of this commit.
    return (
        git.run("update-ref", "-m", "liza: it was deleted during tests", f"refs/heads/{branch}", commit, "").code == 0
    )


def move_branch_back(git: Git, branch: str, candidate: str, expected: str) -> bool:
    """Move ``branch`` from ``candidate``, where tests have put it, back to ``expected``; whether that was done.

    Not done where the branch is elsewhere, or where files of a person's checkout are in the way. Raises GitFailed.
    """
    if branch_tip(git, branch) != candidate:
        return False
    place = _find_checkout(git, branch)
    if place is not None:
        return branch_moves.move_branch(git.at(place), BranchMove(branch, candidate, expected))[0] == "moved"
    words = ("update-ref", "-m", f"liza: back from {candidate[:10]}", f"refs/heads/{branch}", expected, candidate)
    return git.run(*words).code == 0


def sync_returned_checkouts(git: Git, branch: str) -> None:
    """Bring along the checkouts of ``branch`` that were absent when it moved, and are there again.

    Raises Refused while a git of the person's is at work there, GitFailed.
    """
    for one in absent_checkouts.find_lagging(git, branch):
        now = branch_tip(git, branch)
        if now is None or not one.directory.is_dir():
            continue
        if absent_checkouts.is_lagging(git, one, now):
            outcome, _ = branch_moves.catch_up_checkout(
                git.at(one.directory), BranchMove(branch, one.last_commit, now, turn_back=False)
            )
            if outcome != "moved":
                continue
        absent_checkouts.remove_record(git, one)


def recover_merges(git: Git, branch: str) -> None:
    """Finish, or take back, what a dead merger left in work trees and beside refs. Only for who holds the merge lock:
    the gits of a merger hold it as well, so they are gone too.

    Raises Refused while a git of the person's is in the way, GitFailed.
    """
    kept = list_candidates(git)
    refs = [ref(task) for task in kept for ref in (candidate_ref, merge_refs.tested_ref)]
    stale_locks.remove_stale_locks(git, (f"refs/heads/{branch}", LAST_INTEGRATION_REF, *refs))
    stale_locks.refuse_directory_at_lock(git_dirs(git)[1] / f"refs/heads/{branch}.lock")
    sync_returned_checkouts(git, branch)
    if branch_moves.has_unfinished_move(git):
        for place in list_checkouts(git):
            branch_moves.recover_move(git.at(place))
    now = branch_tip(git, branch)
    if now is not None and now in kept.values():
        # Anybody can name the first commit of all a candidate, and that replaced nothing.
        expected = git.run("rev-parse", "-q", "--verify", f"{now}^1", codes=(0, 1)).stdout.decode().strip()
        if expected:
            sync_checkout(git, branch, now, expected)


def list_candidates(git: Git) -> dict[str, str]:
    """The candidates that are kept, by task. Raises GitFailed."""
    return merge_refs.refs_below(git, candidate_ref(""))


def _find_checkout(git: Git, branch: str) -> Path | None:
    return next((place for place, found in list_checkouts(git).items() if found == branch), None)


def _advance_in_checkout(git: Git, place: Path, branch: str, candidate: str, expected: str) -> AdvanceResult:
    there = git.at(place)
    now = branch_tip(git, branch)
    if now != expected:
        return sync_checkout(git, branch, candidate, expected) if now == candidate else AdvanceResult("lost")
    # git itself would bring back a file that the person has deleted.
    mine = _find_blocking_files(there, candidate, expected)
    if mine:
        return AdvanceResult("waiting", mine, "changed in the checkout", place)
    outcome, reason = branch_moves.move_branch(there, BranchMove(branch, expected, candidate))
    if outcome == "waiting":
        files = _find_blocking_files(there, candidate, expected)
        if not files:
            what = f"{branch} is checked out in {place}, and its files could not be brought along"
            raise GitFailed(f"{what}: {reason}", f"git -C {shlex.quote(str(place))} status")
        return AdvanceResult("waiting", files, reason, place)
    return AdvanceResult("lost") if outcome == "lost" else AdvanceResult("moved", checkout=place)


def _find_blocking_files(there: Git, candidate: str, expected: str) -> tuple[str, ...]:
    """The files that the merge changes and the person has changed, or has lying there, ignored or not."""
    words = there.names("diff-tree", "-r", "-z", "--name-status", "--no-renames", expected, candidate)
    wanted = dict(zip(words[1::2], words[::2], strict=True))
    mine = list_changed_files(there)
    folders = tuple(name for name in mine if name.endswith("/"))
    return tuple(
        sorted(
            name
            for name, kind in wanted.items()
            if name in mine or name.startswith(folders) or (kind == "A" and os.path.lexists(there.directory / name))
        )
    )
