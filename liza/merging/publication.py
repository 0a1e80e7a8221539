"""Publish tested commits: on a crew on one host its branch moves, on several hosts the remote's, under a term.

The merger of a crew on several hosts first moves the term at the remote to its own, then settles what earlier mergers
left, then works. The remote refuses every push of a merger whose term is not the last.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress

from liza.crew.crew import Crew
from liza.git import branch_moves, following, git_refs, publication_log
from liza.git.checkout_moves import AdvanceResult, MoveOutcome
from liza.git.following import SeenTip
from liza.git.git_refs import HEADS
from liza.git.merge_term import HeldTerm
from liza.git.rules.publications import Publication
from liza.git.shared_remote import PublishOutcome, SharedRemote
from liza.merging import board_term
from liza.merging.board_term import MergerReplaced
from liza.model import targets
from liza.model.errors import LizaError, Refused
from liza.model.model import Task
from liza.model.paths import branch_of
from liza.tasks import shared_code, task_branches

_NOT_HERE = "the merger of this crew runs on another host"


def begin(crew: Crew, *, accepts_rewritten: bool = False) -> Crew:
    """Return the crew with the term of its merger, which the remote has; the same crew on one host.

    The branches of this clone follow the remote. ``accepts_rewritten``: also if the remote lacks what was published.
    Raises MergerReplaced if another host merges, RemoteUnavailable, Missing, Refused, GitFailed.
    """
    remote = shared_code.find_remote(crew)
    if remote is None:
        return crew
    integration = crew.board.read().config.integration_branch
    held = _take_term(crew, remote, integration)
    tip, obstacle = shared_code.fetch_target(crew, remote, integration)
    if obstacle is not None:
        raise obstacle
    shared_code.fetch_all_targets(crew, remote)
    if not accepts_rewritten:
        _refuse_rewritten(crew, remote, integration, tip)
    return crew.with_term(held)


def _take_term(crew: Crew, remote: SharedRemote, integration: str) -> HeldTerm:
    """Move the term at the remote to that of this host, unless it is there already."""
    term = board_term.take_term(crew)
    remote.fetch(integration)
    commit, last = publication_log.read_last(crew.git)
    if last is not None and (last.term > term.number or (last.term == term.number and last.host != term.host)):
        # Terms of the remote came from the board. One that is newer: another host took the duty just now, or the board
        # is older than the remote, as after a restore or a move to another database.
        raised = term.raised_above(last.term)
        if raised is None:
            raise replaced_error(crew, remote)
        term = raised
    if commit is None or last is None or last.term < term.number:
        commit = remote.take_term(Publication(term.number, term.host), commit)
    if commit is None:
        raise replaced_error(crew, remote)
    return HeldTerm(term, commit)


def _refuse_rewritten(crew: Crew, remote: SharedRemote, branch: str, tip: str) -> None:
    """Raise Refused if a branch of the remote lacks what was published there last: nothing may be built on that."""
    published = publication_log.find_published_tip(crew.git, branch)
    if published is None or git_refs.is_contained(crew.git, published, tip):
        return
    message = f"{branch} of {remote.name} was rewritten: it is at {tip[:10]}, and lacks {published[:10]}"
    raise Refused(f"{message}, which was merged", restore_command(remote.name, branch, published, tip))


def restore_command(remote: str, branch: str, published: str, tip: str) -> str:
    """Return the command that puts a branch of the remote back to what was published."""
    lease = f"--force-with-lease={branch}:{tip}"
    return shlex.join(["git", "push", lease, remote, f"{published}:{HEADS}{branch}"])


def replaced_error(crew: Crew, remote: SharedRemote) -> MergerReplaced:
    """Return the error for a merger that another one has replaced, with the host that has the term."""
    with suppress(LizaError):
        remote.fetch(crew.board.read().config.integration_branch)
    _, last = publication_log.read_last(crew.git)
    where = "" if last is None else f": {last.host} has the term {last.term}"
    return MergerReplaced(f"{_NOT_HERE}{where}", "liza status")


def fetch_for_merge(crew: Crew, branch: str, tasks: Sequence[Task]) -> None:
    """Fetch the branch that tasks are merged into, and their submitted commits. Raises RemoteUnavailable, Missing;
    Refused if the branch of this clone cannot follow the remote; GitFailed."""
    remote = shared_code.find_remote(crew)
    if remote is None:
        return
    epic = targets.epic_of(branch)
    if epic is not None:
        shared_code.ensure_epic(crew, remote, epic)
    missing = [task for task in tasks if task.review_commit and not git_refs.has_commit(crew.git, task.review_commit)]
    shared_code.fetch_requests(remote, missing)
    obstacle = shared_code.fetch_target(crew, remote, branch, *(branch_of(task.id) for task in missing))[1]
    if obstacle is not None:
        raise obstacle


def advance(crew: Crew, branch: str, commit: str, expected: str, tasks: Sequence[str] = ()) -> AdvanceResult:
    """Move ``branch`` from ``expected`` to the tested ``commit``, at the remote if the crew has several hosts.

    LOST: the branch has moved. Raises MergerReplaced, RemoteUnavailable, Refused, Missing, GitFailed.
    """
    remote = shared_code.find_remote(crew)
    if remote is None:
        return branch_moves.advance_branch(crew.git, branch, commit, expected)
    held = crew.held_term
    if held is None or not held.term.is_held():
        raise replaced_error(crew, remote)
    publication = Publication(held.term.number, held.term.host, branch, commit, tuple(tasks))
    outcome, held.commit = remote.publish(publication, expected, held.commit)
    if outcome is PublishOutcome.TERM_MOVED:
        raise replaced_error(crew, remote)
    if outcome is PublishOutcome.BRANCH_MOVED:
        shared_code.fetch_target(crew, remote, branch)
        return AdvanceResult(MoveOutcome.LOST)
    # It is published: whatever keeps the branch of this clone, the next fetch moves it.
    with suppress(LizaError, OSError):
        last_ref = shared_code.last_tip_ref(crew, branch)
        following.follow_target(crew.git, remote, SeenTip(branch, commit, expected), last_ref)
    return AdvanceResult(MoveOutcome.MOVED)


def record_accepted(crew: Crew, branch: str, tip: str) -> None:
    """Record at the remote that a person accepts where its branch is. Nothing is done on one host. Raises as
    ``advance`` does."""
    remote, held = shared_code.find_remote(crew), crew.held_term
    if remote is None or held is None or publication_log.find_published_tip(crew.git, branch) == tip:
        return
    publication = Publication(held.term.number, held.term.host, branch, tip)
    commit = remote.take_term(publication, held.commit)
    if commit is None:
        raise replaced_error(crew, remote)
    held.commit = commit


def restore_shared(crew: Crew, epic: str) -> str:
    """Put the branch of an epic at the remote back to what was published there last, and save what it had. Return a
    sentence; empty if nothing was published or it is there. Raises as ``advance`` does."""
    branch = targets.epic_branch(epic)
    published, tip = (
        publication_log.find_published_tip(crew.git, branch),
        branch_moves.branch_tip(crew.git, branch),
    )
    if published is None or tip is None or tip == published:
        return ""
    saved = task_branches.save_epic_tip(crew.git, epic, tip)
    advance(crew, branch, published, tip)
    return f"{branch} was put back to {published[:10]}; its former tip is saved as {saved}"


def is_published(crew: Crew, branch: str, commit: str) -> bool:
    """Return whether a merger of any host published exactly this commit to the branch, as far as it was fetched. False
    on one host: there are the refs of tested candidates. Raises GitFailed."""
    return bool(crew.remote_name) and publication_log.has_publication(crew.git, branch, commit)
