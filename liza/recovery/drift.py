"""Detect changes to the repository outside of Liza: commits on integration, or their loss.

A detection runs several gits. Its result is cached with a stamp of the files that it was computed from, for all
supervisors and ``liza status``.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from liza.crew.crew import Crew
from liza.git import ref_names, symbolic_refs
from liza.git.git_config import git_dirs
from liza.git.merge import absent_checkouts, merge_refs, merges
from liza.git.runner import COMMIT, Git
from liza.git.symbolic_refs import RefValue
from liza.merging.rules.merge_alarms import AbsentCheckout
from liza.model import targets
from liza.model.errors import Missing, WriteFailed
from liza.model.model import State, Status, Task
from liza.model.value_classes import Value, replace
from liza.recovery import drift_cache
from liza.recovery.drift_cache import CachedDrift, RepositoryStamp
from liza.recovery.rules.drift_alarms import RepositoryDrift
from liza.tasks import archived_tasks
from liza.text.undecoded import escape_undecoded

LAST_INTEGRATION_REF = merges.LAST_INTEGRATION_REF


class IntegrationDrift(Value):
    """A move of integration outside of Liza, from ``last_tip`` to ``tip``.

    ``removed`` are the commits that it does not contain any more, ``added`` the new ones, newest first, each with a
    line about it. ``lost_tasks`` are the merged tasks that are gone. ``has_merged_since`` says whether Liza has merged
    onto it since.
    """

    branch: str
    last_tip: str
    tip: str
    removed: dict[str, str]
    added: dict[str, str]
    lost_tasks: tuple[str, ...]
    has_merged_since: bool

    @property
    def summary(self) -> str:
        """A phrase: from which commit to which, and what that means for merged work."""
        is_one_way = bool(self.removed) != (bool(self.added) or self.has_merged_since)
        direction = "" if not is_one_way else "back " if self.removed else "on "
        effects = []
        if self.lost_tasks:
            tasks = _join_first(self.lost_tasks, 5, ", ")
            effects.append(f"{_format_count(len(self.lost_tasks), 'merged task')} not in it any more: {tasks}")
        elif self.removed:
            commits = _join_first([*self.removed.values()])
            effects.append(f"{_format_count(len(self.removed), 'commit')} not in it any more: {commits}")
        if self.added:
            commits = _join_first([*self.added.values()])
            effects.append(f"{_format_count(len(self.added), 'commit')} new, without a verdict: {commits}")
        return f"from {self.last_tip[:10]} {direction}to {self.tip[:10]}: {'. '.join(effects) or 'no commit is lost'}"

    @property
    def message(self) -> str:
        """A sentence for people."""
        return f"{self.branch} was moved outside of liza, {self.summary}"


def current_drift(crew: Crew, state: State) -> RepositoryDrift:
    """Return the current drift: from the cache if none of its files has changed, else detected again.

    Raises LizaError, OSError.
    """
    cached = drift_cache.read_cache(crew.paths)
    return cached.seen if cached.stamp == stamp_repository(crew, state) else detect_drift(crew, state)


def detect_drift(crew: Crew, state: State) -> RepositoryDrift:
    """Detect the current drift and cache it. Raises LizaError, OSError."""
    stamp = stamp_repository(crew, state)
    result = _detect_integration_drift(crew, state)
    # The cache is an optimization: the result is valid even if it cannot be written.
    with suppress(OSError, WriteFailed):
        drift_cache.write_cache(crew.paths, CachedDrift(stamp, result))
    return result


def stamp_repository(crew: Crew, state: State) -> RepositoryStamp:
    """Return a stamp that changes if there may be new drift. Runs no git if ``.git`` is a directory.

    Raises LizaError, OSError.
    """
    git = Git(crew.paths.root)
    dot_git = crew.paths.root / ".git"
    plain_git = git if dot_git.is_file() else git.with_git_dir(crew.paths.root, dot_git, dot_git)
    common = git_dirs(plain_git)[1]
    branch = state.config.integration_branch
    names = ("packed-refs", f"refs/heads/{branch}", LAST_INTEGRATION_REF, "reftable/tables.list")
    absent_records = sorted(common.glob(f"worktrees/*/{absent_checkouts.LAST_COMMIT_FILE}"))
    return [_stamp_file(path) for path in (*(common / name for name in names), *absent_records)]


def require_integration(crew: Crew, state: State) -> str:
    """Return the commit of integration.

    Raises Missing if it is gone or symbolic, with the command that restores it.
    """
    ref = f"refs/heads/{state.config.integration_branch}"
    return _require_plain(crew, state, ref, symbolic_refs.read_refs(crew.git, ref)[0])


def _require_plain(crew: Crew, state: State, ref: str, integration: RefValue) -> str:
    """Return the commit of ``integration``, the value of ``ref``. Raises Missing as ``require_integration`` does."""
    if integration.target is not None:
        raise Missing(symbolic_refs.describe_symbolic(ref, integration.target), symbolic_refs.delete_command(ref))
    if integration.commit is None:
        raise _integration_gone_error(crew, state)
    return integration.commit


def find_integration_drift(crew: Crew) -> IntegrationDrift | None:
    """Return how integration differs from the commit at which Liza left it, or None. Raises Missing if it is gone."""
    state = crew.board.read()
    ref = f"refs/heads/{state.config.integration_branch}"
    integration, last = symbolic_refs.read_refs(crew.git, ref, LAST_INTEGRATION_REF)
    if _require_plain(crew, state, ref, integration) == last.commit and last.target is None:
        return None
    while True:
        last_tip = _read_last_tip(crew)
        drift = _find_drift_from(crew, last_tip)
        # A merger that moved the branch before it was read, and has recorded the new tip since, moved it for Liza.
        if drift is None or is_last_tip(crew, last_tip):
            return drift


def _find_drift_from(crew: Crew, last_tip: str | None) -> IntegrationDrift | None:
    """Return how integration differs from ``last_tip``, which was read before. Raises Missing if it is gone.

    A merger writes the tested refs, moves the branch, writes the board, and deletes the refs. They are read in that
    order: the candidate is in the refs, or on the board that is read after them.
    """
    tip = require_integration(crew, crew.board.read())
    tested = frozenset(merge_refs.list_tested(crew.git).values())
    state = crew.board.read()
    expected_tip = last_tip or _newest_merge(crew, state)
    if expected_tip is None or tip == expected_tip:
        return None
    drift = _compare_tips(crew, state, expected_tip, tip, tested)
    # Without the ref it is unknown who added the commits since the newest merge.
    return drift if drift.removed or (drift.added and last_tip is not None) else None


def drift_after_merge(crew: Crew, drift: IntegrationDrift, commit: str) -> IntegrationDrift:
    """Return the drift without the commits that a merge of ``commit`` brings back. Raises GitFailed."""
    removed = _commits_between(crew, drift.last_tip, drift.tip, commit)
    return replace(drift, removed=removed, lost_tasks=_lost_tasks(crew, crew.board.read(), removed))


def recovery_commands(crew: Crew, drift: IntegrationDrift, accept: str = "liza sync") -> str:
    """Return the commands to undo the drift and to accept it, the likelier one first. Raises GitFailed."""
    if drift.has_merged_since and not drift.removed:
        # To go back would remove what Liza has merged.
        return accept
    rewind = _rewind_command(crew, drift)
    if drift.lost_tasks:
        return f"{rewind}, or to accept it: {accept} --accept-moved"
    return f"{accept}, or to go back: {rewind}"


def is_last_tip(crew: Crew, commit: str | None) -> bool:
    """Return whether Liza left integration at ``commit``; True if that is unknown. Raises GitFailed."""
    return _read_last_tip(crew) in (None, commit)


def record_last_tip(crew: Crew, tip: str) -> None:
    """Record that Liza, or a person by a Liza command, put integration at ``tip``. Raises GitFailed."""
    crew.git.out("update-ref", LAST_INTEGRATION_REF, tip)


def record_merged_tip(crew: Crew, task: Task, expected: str, candidate: str) -> str | None:
    """Record that Liza has moved integration from ``expected``. Return a line about earlier drift, or None.

    If merged tasks were lost, it is not recorded: the alarm stays until a person undoes or accepts the drift. Raises
    GitFailed.
    """
    last_tip = _read_last_tip(crew)
    if last_tip is None or last_tip in (expected, candidate):
        record_last_tip(crew, candidate)
        return None
    tested = frozenset(merge_refs.list_tested(crew.git).values())
    drift = _compare_tips(crew, crew.board.read(), last_tip, expected, tested)
    if not drift.lost_tasks:
        record_last_tip(crew, candidate)
    if (drift.lost_tasks and drift.has_merged_since) or not (drift.removed or drift.added):
        return None
    onto = "commits without a verdict" if drift.added else "less than had been merged"
    next_command = recovery_commands(crew, drift) if drift.lost_tasks else f"git log {last_tip[:12]}..{expected[:12]}"
    return f"integration_moved  {task.id} was merged onto {onto}: {drift.summary}. Next: {next_command}"


def _detect_integration_drift(crew: Crew, state: State) -> RepositoryDrift:
    """Return the drift of integration and its absent checkouts."""
    ref = f"refs/heads/{state.config.integration_branch}"
    integration = symbolic_refs.read_refs(crew.git, ref)[0]
    try:
        _require_plain(crew, state, ref, integration)
    except Missing as error:
        return RepositoryDrift(moved=error.message, ways=error.hint)
    branch = state.config.integration_branch
    absent = tuple(_describe_absent(crew, record, branch) for record in absent_checkouts.find_lagging(crew.git, branch))
    drift = find_integration_drift(crew)
    if drift is None:
        return RepositoryDrift(away=absent)
    return RepositoryDrift(away=absent, moved=drift.message, lost=drift.lost_tasks, ways=recovery_commands(crew, drift))


def _describe_absent(crew: Crew, record: absent_checkouts.AbsentCheckoutRecord, branch: str) -> AbsentCheckout:
    advance, step = merges.find_blocking_return(crew.git, record, branch), "liza doctor --fix"
    blocking, step = merges.describe_blocking(advance, step) if advance.blocking else ("", step)
    return AbsentCheckout(str(record.directory), branch, step, blocking)


def _integration_gone_error(crew: Crew, state: State) -> Missing:
    branch = state.config.integration_branch
    start = _read_last_tip(crew) or _newest_merge(crew, state) or "HEAD"
    return Missing(f"the branch {branch} is gone", f"git branch {shlex.quote(branch)} {start[:12]}")


def _compare_tips(crew: Crew, state: State, last_tip: str, tip: str, tested: frozenset[str]) -> IntegrationDrift:
    """Return the drift between two tips of integration. ``tested`` are candidates that may be published."""
    removed, added = _commits_between(crew, last_tip, tip), _commits_between(crew, tip, last_tip)
    liza_commits = _liza_commits(crew, state, added, tested) if added else set()
    if liza_commits:
        added = _commits_between(crew, tip, last_tip, *liza_commits)
    return IntegrationDrift(
        state.config.integration_branch,
        last_tip,
        tip,
        removed,
        added,
        _lost_tasks(crew, state, removed),
        bool(liza_commits),
    )


def _commits_between(crew: Crew, new: str, *old: str) -> dict[str, str]:
    """Return the commits of ``new`` that none of ``old`` contains, newest first, each with a line about it."""
    output = crew.git.out("log", "--no-color", "--format=%H %h %an: %s", new, *(f"^{commit_id}" for commit_id in old))
    rows = (line.partition(" ")[::2] for line in escape_undecoded(output).split("\n") if line)
    return {commit: line[:80] for commit, line in rows}


def _lost_tasks(crew: Crew, state: State, removed: Iterable[str]) -> tuple[str, ...]:
    """Return the merged tasks of which both the merge commit and the reviewed commit are gone."""
    commits = set(removed)
    merged = [task for task in state.tasks if task.status is Status.MERGED]
    merged += archived_tasks.find_merged(crew.paths, state, commits)
    return tuple(task.id for task in merged if {task.merge_commit, task.review_commit} <= commits)


def _liza_commits(crew: Crew, state: State, added: Iterable[str], tested: Iterable[str]) -> set[str]:
    """Return those of the commits that merges of Liza have put on integration, or will: ``tested`` ones."""
    commits = set(added)
    on_board = [task.merge_commit for task in state.tasks if targets.is_on_integration(task)]
    landed = [commit for epic in state.epics.values() for commit in epic.landed]
    archived = [task.merge_commit for task in archived_tasks.find_merged(crew.paths, state, commits)]
    return commits & {*on_board, *landed, *archived, *tested}


def _rewind_command(crew: Crew, drift: IntegrationDrift) -> str:
    """Return the command that restores removed commits and keeps what Liza has merged since."""
    branch, commit = shlex.quote(drift.branch), drift.last_tip[:12]
    if drift.has_merged_since:
        before = shlex.quote(ref_names.find_free_name(f"{drift.branch}-before", ref_names.list_branches(crew.git)))
        return f"git branch {before} {commit} && liza sync {before}"
    checkout_branch = merges.find_branches(crew.git, drift.branch).get(drift.branch)
    if checkout_branch is not None and checkout_branch.checkout is not None:
        return f"git -C {shlex.quote(str(checkout_branch.checkout))} reset --keep {commit}"
    return f"git branch -f {branch} {commit}"


def _newest_merge(crew: Crew, state: State) -> str | None:
    """Return the newest merge commit on the board that the repository still has, or None."""
    merge_commits = [
        task.merge_commit
        for task in state.tasks
        if task.merge_commit and targets.is_on_integration(task) and COMMIT.fullmatch(task.merge_commit)
    ]
    merge_commits += filter(COMMIT.fullmatch, (commit for epic in state.epics.values() for commit in epic.landed))
    merge_commits += filter(COMMIT.fullmatch, archived_tasks.newest_merges(crew.paths, state))
    if not merge_commits:
        return None
    return crew.git.out("rev-list", "--ignore-missing", "--topo-order", "-n1", *merge_commits) or None


def _read_last_tip(crew: Crew) -> str | None:
    """Return the commit at which Liza left integration, or None if that is unknown."""
    last = symbolic_refs.read_refs(crew.git, LAST_INTEGRATION_REF)[0]
    return last.commit if last.target is None else None


def _format_count(number: int, noun: str) -> str:
    return f"1 {noun} is" if number == 1 else f"{number} {noun}s are"


def _join_first(lines: Sequence[str], most: int = 3, between: str = "; ") -> str:
    return between.join(lines[:most]) + (f" and {len(lines) - most} more" if len(lines) > most else "")


def _stamp_file(path: Path) -> list[int] | None:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return [status.st_ino, status.st_size, status.st_mtime_ns]
