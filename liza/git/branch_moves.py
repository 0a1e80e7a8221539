"""Move a branch to a tested candidate by compare-and-swap, together with its checkout if it has one, or back."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from liza.git import candidates, checkout_files, checkout_moves, git_refs, leftovers
from liza.git.checkout_moves import AdvanceResult, BranchMove, MoveOutcome
from liza.git.git_config import git_dirs, list_worktrees, read_gitfile
from liza.git.rules.git_operations import put_away_command, show_command
from liza.git.runner import Git, find_remedy, summarize_error
from liza.git.survey import describe_operation, find_operation
from liza.model.errors import GitFailed, Missing, NotRegularFile, Refused
from liza.model.model import MergeInProgress
from liza.model.value_classes import Value
from liza.system import untrusted_files
from liza.text.undecoded import list_names

_REVISION_SYNTAX = re.compile(r"[~^:]|@\{|\.\.")
LAST_INTEGRATION_REF = "refs/liza/integration"
"""Ref at the commit to which Liza last moved integration."""


def last_tip_ref(branch: str) -> str:
    """Return the ref at the commit to which Liza last moved a branch of an epic, or one that a person named."""
    return f"refs/liza/targets/{branch}"


def contains(git: Git, branch: str, commit: str) -> bool:
    """Return whether ``branch`` contains ``commit``. Raises GitFailed if one of them does not exist."""
    return git.ok("merge-base", "--is-ancestor", commit, f"refs/heads/{branch}")


def branch_tip(git: Git, branch: str) -> str | None:
    """Return the commit at the tip of a branch, or None if the branch does not exist. Raises GitFailed."""
    # `main~1` is no branch, but git would read it as a revision.
    return git.find_commit(f"refs/heads/{branch}") if _REVISION_SYNTAX.search(branch) is None else None


class Branch(Value):
    """A branch: the commit at its tip and the worktree that has it checked out."""

    commit: str
    checkout: Path | None


def find_branches(git: Git, *names: str) -> dict[str, Branch]:
    """Return those of the branches ``names`` that exist, by name. Raises GitFailed."""
    format_option = "--format=%(refname)%00%(objectname)%00%(worktreepath)"
    rows = git.out("for-each-ref", format_option, *(f"refs/heads/{name}" for name in names)).split("\n")
    fields = [row.split("\0") for row in rows if row.count("\0") == 2]
    main = _find_misnamed_main(git) if any(path for _, _, path in fields) else {}
    return {
        ref.removeprefix("refs/heads/"): Branch(commit, main.get(Path(path), Path(path)) if path else None)
        for ref, commit, path in fields
    }


def list_checkouts(git: Git) -> dict[Path, str | None]:
    """Return every existing worktree of the repository with its branch. Raises GitFailed."""
    return {path: branch for path, branch in _list_recorded(git).items() if path.is_dir()}


def _list_recorded(git: Git) -> dict[Path, str | None]:
    """As ``list_checkouts``, with the locked worktrees that are absent: git keeps them, for portable drives."""
    checkouts: dict[Path, str | None] = {}
    path = Path()
    # A crew has a main checkout, also if another tool has called the repository bare: nothing moves its branch past it.
    for line in git.with_config(("core.bare", "false")).names("worktree", "list", "--porcelain", "-z"):
        kind, _, value = line.partition(" ")
        if kind == "worktree":
            path = Path(value)
            checkouts[path] = None
        elif kind == "branch":
            checkouts[path] = value.removeprefix("refs/heads/")
        elif kind == "prunable":
            checkouts.pop(path, None)
    main = _find_misnamed_main(git)
    return {main.get(path, path): branch for path, branch in checkouts.items()}


def _find_misnamed_main(git: Git) -> dict[Path, Path]:
    """Return the main checkout by the name that git gives it, if its ``.git`` is a file that names the git directory.

    git then takes the git directory, or its parent if it is called ``.git``, for the main worktree.
    """
    git_dir = read_gitfile(git.directory / ".git")
    if git_dir is None or git_dir.resolve() != (common := git_dirs(git)[1]):
        return {}
    return {common.parent if common.name == ".git" else common: git.directory}


def advance_branch(git: Git, branch: str, candidate: str, expected: str) -> AdvanceResult:
    """Move ``branch`` from ``expected`` to ``candidate``, together with its checkout if there is one.

    Only for a candidate whose tests passed: if the branch is at the candidate already, the result is MOVED. Raises
    Missing if the branch has two checkouts, GitFailed if git fails for another reason than an
    AdvanceResult names.
    """
    ref = f"refs/heads/{branch}"
    if branch_tip(git, branch) == candidate:
        return sync_checkout(git, branch, candidate, expected)
    checkout = _find_only_checkout(git, branch)
    leftovers.remove_stale_locks(git, (ref,))
    if checkout is not None:
        return _advance_in_checkout(git, checkout, branch, candidate, expected)
    args = ("update-ref", "-m", f"liza: {candidate[:10]}", f"refs/heads/{branch}", candidate, expected)
    result = git.run(*args)
    if result.code != 0:
        current = branch_tip(git, branch)
        if current == expected:
            raise GitFailed(
                f"{branch} could not be moved to {candidate[:10]}: {summarize_error(result)}",
                find_remedy(result.stderr),
            )
        # A git that was killed after it wrote the ref has moved the branch.
        if current != candidate or result.code > 0:
            return AdvanceResult(MoveOutcome.LOST)
    return sync_checkout(git, branch, candidate, expected)


def require_movable(git: Git, branch: str) -> None:
    """Raise Missing if ``branch`` cannot be moved: it is gone, or has two checkouts. Raises GitFailed."""
    if branch_tip(git, branch) is None:
        raise Missing(f"the branch {branch} is gone", "liza doctor")
    _find_only_checkout(git, branch)


def sync_checkout(git: Git, branch: str, candidate: str, expected: str) -> AdvanceResult:
    """Update a checkout that was made while ``branch`` moved from ``expected`` to ``candidate``.

    Idempotent. If the person's files are in the way, the branch moves back, so that their next commit does not revert
    the merge. Raises GitFailed.
    """
    checkout = find_checkout(git, branch)
    if checkout is None:
        return AdvanceResult(MoveOutcome.MOVED)
    return checkout_moves.catch_up_checkout(git.at(checkout), BranchMove(branch, expected, candidate))


def find_blocking(git: Git, branch: str, merging: MergeInProgress) -> AdvanceResult:
    """Return what is in the way of a candidate now, in the checkout of its branch. Raises GitFailed."""
    checkout = find_checkout(git, branch)
    if checkout is None:
        return AdvanceResult(MoveOutcome.WAITING)
    return _find_blocking(git.at(checkout), f"refs/heads/{branch}", merging.expected, merging.candidate)


def _find_blocking(checkout_git: Git, base: str, old: str, new: str) -> AdvanceResult:
    state = checkout_files.read_checkout(checkout_git, base)
    files = checkout_files.find_blocking_files(checkout_git, state, old, new)
    return AdvanceResult(MoveOutcome.WAITING, files, "", checkout_git.directory)


def describe_blocking(advance: AdvanceResult, again: str = "") -> tuple[str, str]:
    """Return what is in the way, with the command that shows it; and the command that puts it away, followed by the
    command ``again``."""
    names = f"{list_names(advance.files)} {'is' if len(advance.files) == 1 else 'are'} in the way"
    checkout = advance.checkout
    directory = "" if checkout is None or checkout == Path.cwd() else str(checkout)
    status = shlex.join(["git", *(["-C", directory] if directory else []), "status"])
    if checkout is not None and find_operation(git_dirs(Git(checkout))[0]):
        # Neither a stash nor a rename concludes a merge, a rebase or a similar operation.
        return f"{names} ({status})", status
    shown = show_command(advance.blocking, directory)
    put_away = put_away_command(advance.blocking, directory)
    return f"{names} ({shown})", " && ".join(filter(None, (put_away, again))) or status


def restore_branch(git: Git, branch: str, commit: str) -> bool:
    """Put ``branch`` back to ``commit`` after tests moved or deleted it. Return whether it is there.

    It is not moved if files in a person's checkout are in the way. Raises GitFailed.
    """
    tip = branch_tip(git, branch)
    if tip is not None:
        return tip == commit or move_branch_back(git, branch, tip, commit)
    # Checkouts of a deleted branch keep HEAD, index and files: they match this commit.
    return (
        git.run("update-ref", "-m", "liza: it was deleted during tests", f"refs/heads/{branch}", commit, "").code == 0
    )


def move_branch_back(git: Git, branch: str, candidate: str, expected: str) -> bool:
    """Move ``branch`` from ``candidate``, where tests put it, back to ``expected``. Return whether it moved.

    It is not moved if it is at another commit, or if files in a person's checkout are in the way. Raises GitFailed.
    """
    if branch_tip(git, branch) != candidate:
        return False
    checkout = find_checkout(git, branch)
    if checkout is not None:
        moved = checkout_moves.move_branch(git.at(checkout), BranchMove(branch, candidate, expected))
        return moved.outcome is MoveOutcome.MOVED
    args = ("update-ref", "-m", f"liza: back from {candidate[:10]}", f"refs/heads/{branch}", expected, candidate)
    return git.run(*args).code == 0


def recover_merges(git: Git, branches: Sequence[str]) -> dict[str, str]:
    """Complete or undo what a dead merger left in worktrees and beside refs. Return the candidates that have a ref.

    ``branches`` are those that it may have moved.

    The caller holds the merge lock. The gits of a merger inherit that lock, so they have ended, too. Raises Refused
    while another git holds an index lock, GitFailed.
    """
    commits = candidates.list_candidates(git)
    refs = [ref(task) for task in commits for ref in (candidates.candidate_ref, git_refs.tested_ref)]
    heads = [f"refs/heads/{branch}" for branch in branches]
    last_tips = [last_tip_ref(branch) for branch in branches[1:]]
    leftovers.remove_stale_locks(git, (*heads, LAST_INTEGRATION_REF, *last_tips, *refs))
    if checkout_moves.has_unfinished_move(git):
        for checkout in list_checkouts(git):
            checkout_moves.recover_move(git.at(checkout))
    for branch in branches if commits else ():
        _sync_published(git, branch, commits)
    return commits


def _sync_published(git: Git, branch: str, commits: Mapping[str, str]) -> None:
    """Update a checkout of a branch that a dead merger has moved to one of the candidates."""
    tip = branch_tip(git, branch)
    if tip is not None and tip in commits.values():
        # Agents can write candidate refs: a root commit has no parent and is not a candidate. A batch is published with
        # its last candidate.
        expected = git.find_commit(f"{tip}^1")
        while expected in commits.values():
            expected = git.find_commit(f"{expected}^1")
        if expected:
            sync_checkout(git, branch, tip, expected)


def find_checkout(git: Git, branch: str) -> Path | None:
    """Return the checkout that has the branch checked out; None if no checkout has. Raises GitFailed."""
    return next((path for path, checked_out in list_checkouts(git).items() if checked_out == branch), None)


def _find_only_checkout(git: Git, branch: str) -> Path | None:
    """Return the checkout that moves together with the branch; None if the branch has no checkout.

    Raises Missing if it is absent and locked: a commit there would later take back what was merged. Raises Missing if
    there are two (`git worktree add --force`, `git checkout --ignore-other-worktrees`): git moves one
    of them, and the next commit in the other would take back what was merged. Raises Refused if a rebase of the branch
    is in progress, as git itself does: the rebase could not end, and its abort would take the branch back.
    """
    _refuse_rebase(git, branch)
    checkouts = [path for path, checked_out in _list_recorded(git).items() if checked_out == branch]
    absent = next((path for path in checkouts if not path.is_dir()), None)
    if absent is not None:
        message = f"{branch} is checked out in {absent}, which is locked and absent; it could not move with the branch"
        raise Missing(message, shlex.join(["git", "worktree", "unlock", str(absent)]))
    if len(checkouts) > 1:
        message = f"{branch} is checked out in {checkouts[0]} and in {checkouts[1]}; only one can move with it"
        raise Missing(message, shlex.join(["git", "-C", str(checkouts[1]), "switch", "--detach"]))
    return checkouts[0] if checkouts else None


def _refuse_rebase(git: Git, branch: str) -> None:
    """Raise Refused if a worktree has a rebase in progress that moves ``branch`` at its end."""
    common = git_dirs(git)[1]
    records = {record: gitfile.parent for record, gitfile in list_worktrees(common, skip_unreadable=True).items()}
    for git_dir, checkout in ({common: git.directory} | records).items():
        if not checkout.is_dir():
            continue
        # HEAD is detached meanwhile. git keeps the names of the refs in these files.
        for file in ("rebase-merge/head-name", "rebase-apply/head-name", "rebase-merge/update-refs"):
            with suppress(FileNotFoundError, NotADirectoryError, NotRegularFile):
                refs = os.fsdecode(untrusted_files.read_record(git_dir / file)).splitlines()
                operation = describe_operation(checkout) if f"refs/heads/{branch}" in refs else None
                if operation is not None:
                    raise Refused(f"{branch} could not be moved: {operation[0]}", operation[1])


def _advance_in_checkout(git: Git, checkout: Path, branch: str, candidate: str, expected: str) -> AdvanceResult:
    checkout_git = git.at(checkout)
    tip = branch_tip(git, branch)
    if tip != expected:
        return sync_checkout(git, branch, candidate, expected) if tip == candidate else AdvanceResult(MoveOutcome.LOST)
    advance = checkout_moves.move_branch(checkout_git, BranchMove(branch, expected, candidate))
    if advance.outcome is MoveOutcome.WAITING and not advance.blocking:
        operation = describe_operation(checkout)
        if operation is not None:
            raise Refused(f"{branch} could not be moved: {operation[0]}", operation[1])
        message = f"{branch} is checked out in {checkout}, and its files could not be updated"
        raise GitFailed(f"{message}: {advance.reason}", leftovers.index_lock_hint(checkout_git))
    return advance
