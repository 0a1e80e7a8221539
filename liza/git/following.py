"""Let branches of this clone follow the remote of the crew. No checkout is changed, and no commit is dropped."""

from __future__ import annotations

import shlex
from enum import StrEnum

from liza.git import branch_moves, git_refs, publication_log
from liza.git.git_refs import HEADS
from liza.git.runner import Git
from liza.git.shared_remote import SharedRemote
from liza.model.errors import Refused
from liza.model.value_classes import Value


class SeenTip(Value):
    """The tip of a branch at the remote, and where this clone saw it before; None if it had not seen it."""

    branch: str
    tip: str
    before: str | None


def follow_target(git: Git, remote: SharedRemote, seen: SeenTip, last_ref: str) -> Refused | None:
    """Move a branch that the crew merges into to where the remote has it. Return why it could not move.

    ``last_ref`` then has the commit at which Liza left the branch, on any host. The branch stays if a worktree has it
    checked out, or if it has commits of its own. Raises GitFailed.
    """
    # The branch of an epic is created by any host: until the first publication, where it is at the remote counts.
    previous = git.find_commit(last_ref) if last_ref == branch_moves.LAST_INTEGRATION_REF else None
    last = publication_log.find_published_tip(git, seen.branch) or previous or seen.tip
    git.out("update-ref", last_ref, last)
    local = branch_moves.branch_tip(git, seen.branch)
    if local == seen.tip:
        return None
    if local is not None and local != seen.before and not git_refs.is_contained(git, local, seen.tip):
        return _own_commits_error(remote, seen, local)
    checkout = branch_moves.find_checkout(git, seen.branch)
    if checkout is not None:
        message = f"{seen.branch} is checked out in {checkout}, and it has to follow {remote.name}"
        return Refused(message, shlex.join(["git", "-C", str(checkout), "switch", "--detach"]))
    move_branch(git, seen.branch, seen.tip, local)
    return None


def move_branch(git: Git, branch: str, tip: str, local: str | None) -> None:
    """Move a branch that has no checkout from ``local`` to ``tip``; None: create it. Raises GitFailed."""
    git.out("update-ref", "-m", f"liza: follows the remote to {tip[:10]}", HEADS + branch, tip, local or "0" * len(tip))


def _own_commits_error(remote: SharedRemote, seen: SeenTip, local: str) -> Refused:
    message = f"{seen.branch} of this clone is at {local[:10]}, which {remote.name} never had"
    free = f"{seen.branch}-own"
    step = f"git branch {shlex.quote(free)} {local[:12]} && git branch -f {shlex.quote(seen.branch)} {seen.tip[:12]}"
    return Refused(message, step)


class TaskBranchStep(StrEnum):
    """What is done with the branch of a task in this clone when a run begins here."""

    KEEP = "keep"
    MOVE = "move"
    SAVE_AND_MOVE = "save and move"


def choose_task_step(git: Git, seen: SeenTip, local: str | None) -> TaskBranchStep:
    """Return what to do with the branch of a task, which is at ``local`` here. Raises GitFailed.

    If others pushed nothing since this clone looked last, the work of this clone counts: also a branch that was
    rebased, and commits that were not submitted.
    """
    if local == seen.tip:
        return TaskBranchStep.KEEP
    if local is None or git_refs.is_contained(git, local, seen.tip):
        return TaskBranchStep.MOVE
    if seen.tip == seen.before or git_refs.is_contained(git, seen.tip, local):
        return TaskBranchStep.KEEP
    return TaskBranchStep.SAVE_AND_MOVE
