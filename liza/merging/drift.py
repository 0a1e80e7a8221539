"""Detect changes to the repository outside of Liza: commits on integration, or their loss.

`liza/git/integration_tip.py` records where Liza left the branch.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from liza.board.contract import Board
from liza.crew.crew import Crew
from liza.git import branch_moves, git_refs, integration_tip, publication_log
from liza.git.git_config import git_dirs
from liza.git.git_refs import HEADS
from liza.git.runner import Git
from liza.git.shared_remote import FETCHED_PREFIX
from liza.merging import publication
from liza.merging.rules.repository_drift import IntegrationDrift, RepositoryDrift
from liza.model import targets
from liza.model.errors import Missing
from liza.model.model import State, Status, Task
from liza.model.paths import Paths
from liza.model.value_classes import replace
from liza.tasks import archive
from liza.text.undecoded import escape_undecoded

RepositoryStamp = list[list[int] | None]


def stamp_repository(paths: Paths, state: State) -> RepositoryStamp:
    """Return a stamp that changes if there may be new drift. Runs no git if ``.git`` is a directory.

    Raises LizaError, OSError.
    """
    git = Git(paths.root)
    dot_git = paths.root / ".git"
    plain_git = git if dot_git.is_file() else git.with_git_dir(paths.root, dot_git, dot_git)
    common = git_dirs(plain_git)[1]
    branch = state.config.integration_branch
    names = (
        "packed-refs",
        f"refs/heads/{branch}",
        FETCHED_PREFIX + branch,
        branch_moves.LAST_INTEGRATION_REF,
        "reftable/tables.list",
    )
    return [_stamp_file(common / name) for name in names]


def find_integration_drift(crew: Crew) -> IntegrationDrift | None:
    """Return how integration differs from the commit at which Liza left it, or None. Raises Missing if it is gone."""
    state = crew.board.read()
    ref = _integration_ref(crew, state)
    integration, last = git_refs.find_commits(crew.git, ref, branch_moves.LAST_INTEGRATION_REF)
    if integration == last and (integration is not None or crew.remote_name):
        return None  # on a crew with several hosts, both are missing until the first fetch
    if crew.remote_name:
        published = publication_log.find_published_tip(crew.git, state.config.integration_branch)
        return _find_drift_from(crew, published or last)
    while True:
        last_tip = integration_tip.read_last_tip(crew.git)
        drift = _find_drift_from(crew, last_tip)
        # A merger that moved the branch before it was read, and has recorded the new tip since, moved it for Liza.
        if drift is None or integration_tip.is_last_tip(crew.git, last_tip):
            return drift


def _integration_ref(crew: Crew, state: State) -> str:
    """Return the ref that has integration. On a crew with several hosts that is where the remote had it last: a branch
    of this clone may be a person's, and is behind until it follows."""
    branch = state.config.integration_branch
    return FETCHED_PREFIX + branch if crew.remote_name else HEADS + branch


def _find_drift_from(crew: Crew, last_tip: str | None) -> IntegrationDrift | None:
    """Return how integration differs from ``last_tip``, which was read before. Raises Missing if it is gone.

    A merger writes the tested refs, moves the branch, writes the board, and deletes the refs. They are read in that
    order: the candidate is in the refs, or on the board that is read after them.
    """
    state = crew.board.read()
    fetched = crew.git.find_commit(_integration_ref(crew, state)) if crew.remote_name else None
    tip = fetched or integration_tip.require_integration(crew.git, state)
    tested = frozenset(git_refs.list_tested(crew.git).values())
    state = crew.board.read()
    expected_tip = last_tip or integration_tip.find_newest_merge(crew.git, state)
    if expected_tip is None or tip == expected_tip:
        return None
    drift = _compare_tips(crew, state, expected_tip, tip, tested)
    # Without the ref it is unknown who added the commits since the newest merge.
    return drift if drift.removed or (drift.added and last_tip is not None) else None


def drift_after_merge(crew: Crew, drift: IntegrationDrift, commit: str) -> IntegrationDrift:
    """Return the drift without the commits that a merge of ``commit`` brings back. Raises GitFailed."""
    removed = _commits_between(crew.git, drift.last_tip, drift.tip, commit)
    return replace(drift, removed=removed, lost_tasks=_lost_tasks(crew.board, crew.board.read(), removed))


def recovery_commands(git: Git, drift: IntegrationDrift, accept: str = "liza sync") -> str:
    """Return the commands to undo the drift and to accept it, the likelier one first. Raises GitFailed."""
    if drift.has_merged_since and not drift.removed:
        # To go back would remove what Liza has merged.
        return accept
    rewind = _rewind_command(git, drift)
    if drift.lost_tasks:
        return f"{rewind}, or to accept it: {accept} --accept-moved"
    return f"{accept}, or to go back: {rewind}"


def record_merged_tip(crew: Crew, task: Task, expected: str, candidate: str) -> str | None:
    """Record that Liza has moved integration from ``expected``. Return a line about earlier drift, or None.

    If merged tasks were lost, it is not recorded: the alarm stays until a person undoes or accepts the drift. Raises
    GitFailed.
    """
    last_tip = integration_tip.read_last_tip(crew.git)
    if last_tip is None or last_tip in (expected, candidate):
        integration_tip.record_last_tip(crew.git, candidate)
        return None
    tested = frozenset(git_refs.list_tested(crew.git).values())
    drift = _compare_tips(crew, crew.board.read(), last_tip, expected, tested)
    if not drift.lost_tasks:
        integration_tip.record_last_tip(crew.git, candidate)
    if (drift.lost_tasks and drift.has_merged_since) or not (drift.removed or drift.added):
        return None
    onto = "commits without a verdict" if drift.added else "less than had been merged"
    next_command = (
        recovery_commands(crew.git, drift) if drift.lost_tasks else f"git log {last_tip[:12]}..{expected[:12]}"
    )
    return f"integration_moved  {task.id} was merged onto {onto}: {drift.summary}. Next: {next_command}"


def detect_drift(crew: Crew, state: State) -> RepositoryDrift:
    """Return the drift of integration. Raises LizaError, OSError."""
    try:
        if crew.remote_name:  # the tip that was fetched last does not show that the branch is gone
            integration_tip.require_integration(crew.git, state)
        drift = find_integration_drift(crew)
    except Missing as error:
        crew.git.out("rev-parse", "--git-dir")  # In a damaged repository the branch only seems to be gone.
        return RepositoryDrift(moved=error.message, ways=error.hint)
    if drift is None:
        return RepositoryDrift()
    return RepositoryDrift(moved=drift.message, lost=drift.lost_tasks, ways=recovery_commands(crew.git, drift))


def _compare_tips(crew: Crew, state: State, last_tip: str, tip: str, tested: frozenset[str]) -> IntegrationDrift:
    """Return the drift between two tips of integration. ``tested`` are candidates that may be published."""
    removed, added = _commits_between(crew.git, last_tip, tip), _commits_between(crew.git, tip, last_tip)
    liza_commits = _liza_commits(crew.board, state, added, tested) if added else set()
    if liza_commits:
        added = _commits_between(crew.git, tip, last_tip, *liza_commits)
    return IntegrationDrift(
        state.config.integration_branch,
        last_tip,
        tip,
        removed,
        added,
        _lost_tasks(crew.board, state, removed),
        bool(liza_commits),
        crew.remote_name,
    )


def _commits_between(git: Git, new: str, *old: str) -> dict[str, str]:
    """Return the commits of ``new`` that none of ``old`` contains, newest first, each with a line about it."""
    output = git.out("log", "--no-color", "--format=%H %h %an: %s", new, *(f"^{commit_id}" for commit_id in old))
    rows = (line.partition(" ")[::2] for line in escape_undecoded(output).split("\n") if line)
    return {commit: line[:80] for commit, line in rows}


def _lost_tasks(board: Board, state: State, removed: Iterable[str]) -> tuple[str, ...]:
    """Return the merged tasks of which both the merge commit and the reviewed commit are gone."""
    commits = set(removed)
    merged = [task for task in state.tasks if task.status is Status.MERGED]
    merged += archive.find_merged(board, state, commits)
    return tuple(task.id for task in merged if {task.merge_commit, task.review_commit} <= commits)


def _liza_commits(board: Board, state: State, added: Iterable[str], tested: Iterable[str]) -> set[str]:
    """Return those of the commits that merges of Liza have put on integration, or will: ``tested`` ones."""
    commits = set(added)
    on_board = [commit for task in state.tasks for commit in targets.find_own_commits(task)]
    landed = [commit for epic in state.epics.values() for commit in epic.landed]
    archived = [task.merge_commit for task in archive.find_merged(board, state, commits)]
    return commits & {*on_board, *landed, *archived, *tested}


def _rewind_command(git: Git, drift: IntegrationDrift) -> str:
    """Return the command that restores removed commits and keeps what Liza has merged since."""
    branch, commit = shlex.quote(drift.branch), drift.last_tip[:12]
    if drift.remote and not drift.has_merged_since:
        return publication.restore_command(drift.remote, drift.branch, drift.last_tip, drift.tip)
    if drift.has_merged_since:
        before = shlex.quote(git_refs.find_free_name(f"{drift.branch}-before", git_refs.list_branches(git)))
        return f"git branch {before} {commit} && liza sync {before}"
    checkout_branch = branch_moves.find_branches(git, drift.branch).get(drift.branch)
    if checkout_branch is not None and checkout_branch.checkout is not None:
        return f"git -C {shlex.quote(str(checkout_branch.checkout))} reset --keep {commit}"
    return f"git branch -f {branch} {commit}"


def _stamp_file(path: Path) -> list[int] | None:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return [status.st_ino, status.st_size, status.st_mtime_ns]
