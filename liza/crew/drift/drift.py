"""What happened to the repository outside of Liza: configuration that came after init, commits on integration.

A look costs a few gits, so it is kept, with a stamp of the files that it came from, for every supervisor and for
``liza status``. Who can write ``.git`` can deceive it; what runs, and what is merged, does not hang on it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from liza.crew.crew import Crew
from liza.crew.drift import drift_cache, ref_drift
from liza.crew.drift.drift_cache import CachedDrift, RepositoryStamp
from liza.repo import reflogs, symbolic_refs
from liza.repo.config_pins import Pins, config_files, git_dirs
from liza.repo.merge import absent_checkouts, merge_refs, merges
from liza.repo.runner import COMMIT, Git
from liza.rules.errors import Missing, WriteFailed
from liza.rules.merging.merge_alarms import AbsentCheckout
from liza.rules.model import State, Status, Task
from liza.rules.paths import branch_of
from liza.rules.reports.drift_alarms import RepositoryDrift, SymbolicRef

LAST_INTEGRATION_REF = merges.LAST_INTEGRATION_REF


@dataclass(frozen=True)
class IntegrationDrift:
    """Integration as others have moved it: from ``left`` to ``tip``. ``gone`` and ``came`` are the commits that it has
    no longer, and those that others put there, newest first, each with a line about it; ``lost`` the merged tasks that
    are gone; ``merged`` whether Liza has merged onto it since."""

    branch: str
    last_tip: str
    tip: str
    removed: dict[str, str]
    added: dict[str, str]
    lost_tasks: tuple[str, ...]
    has_merged_since: bool

    @property
    def summary(self) -> str:
        """From where to where, and what that means for what was merged."""
        one_way = bool(self.removed) != (bool(self.added) or self.has_merged_since)
        way = "" if not one_way else "back " if self.removed else "on "
        told = []
        if self.lost_tasks:
            told.append(
                f"{_format_count(len(self.lost_tasks), 'merged task')} not in it any more: {_join_first(self.lost_tasks, 5, ', ')}"
            )
        elif self.removed:
            told.append(
                f"{_format_count(len(self.removed), 'commit')} not in it any more: {_join_first([*self.removed.values()])}"
            )
        if self.added:
            told.append(
                f"{_format_count(len(self.added), 'commit')} new, without a verdict: {_join_first([*self.added.values()])}"
            )
        return f"from {self.last_tip[:10]} {way}to {self.tip[:10]}: {'. '.join(told) or 'nothing is lost by it'}"

    @property
    def message(self) -> str:
        """A sentence for people."""
        return f"{self.branch} was moved outside of liza, {self.summary}"


def current_drift(crew: Crew, state: State) -> RepositoryDrift:
    """What stands: as the last look saw it, while none of the files that it came from has changed; else looked at
    afresh. Raises LizaError, OSError."""
    last = drift_cache.read_cache(crew.paths)
    return last.seen if last.stamp == stamp_repository(crew, state) else detect_drift(crew, state)


def detect_drift(crew: Crew, state: State) -> RepositoryDrift:
    """What stands, looked at afresh, and kept for the others. Raises LizaError, OSError."""
    before = stamp_repository(crew, state)
    planted = Pins.load(crew.paths.pins).violation_messages(crew.git)
    links = tuple(SymbolicRef(*row) for row in _symbolic_rows(crew, state))
    trespasses, branches = ref_drift.detect_session_moves(crew, state, drift_cache.read_cache(crew.paths).branches)
    seen = structs.replace(_detect_integration_drift(crew, state, planted), trespasses=trespasses, symbolic=links)
    # It saves others a look: a disk that does not take it changes nothing of what was seen.
    with suppress(OSError, WriteFailed):
        drift_cache.write_cache(crew.paths, CachedDrift(before, seen, branches))
    return seen


def stamp_repository(crew: Crew, state: State) -> RepositoryStamp:
    """It changes when there is something new to look at, and costs no git where ``.git`` is a directory.

    Raises LizaError, OSError.
    """
    git = Git(crew.paths.root)
    place = crew.paths.root / ".git"
    plain = git if place.is_file() else git.with_git_dir(crew.paths.root, place, place)
    common = git_dirs(plain)[1]
    branch = state.config.integration_branch
    names = (
        "hooks", "packed-refs", "refs/replace", f"refs/heads/{branch}", LAST_INTEGRATION_REF, "reftable/tables.list", "shallow",
        "info/grafts", "objects/info/alternates", "commondir",
    )  # fmt: skip
    left = sorted(common.glob(f"worktrees/*/{absent_checkouts.LAST_COMMIT_FILE}"))
    files = (*config_files(plain), *(common / name for name in names), crew.paths.pins, *left)
    return [
        *(_stamp_file(path) for path in files),
        reflogs.stamp_logs(common),
        symbolic_refs.stamp_symbolic(common, branch),
    ]


def require_integration(crew: Crew, state: State) -> str:
    """The commit that integration stands at. Raises Missing, with the way to have the branch again, or to have it plain
    where it is a symbolic ref."""
    ref = f"refs/heads/{state.config.integration_branch}"
    named = symbolic_refs.symbolic_target(crew.git, ref)
    if named is not None:
        raise Missing(symbolic_refs.describe_symbolic(ref, named), _plain_ref_command(crew, state, ref))
    tip = merges.branch_tip(crew.git, state.config.integration_branch)
    if tip is None:
        raise _integration_gone_error(crew, state)
    return tip


def find_integration_drift(crew: Crew) -> IntegrationDrift | None:
    """How integration stands elsewhere than Liza left it; None where it does not. Raises Missing where it is gone."""
    # In this order: whoever merges notes the candidate on the board, moves the branch, then notes where it was left.
    left = _read_last_tip(crew)
    tip = require_integration(crew, crew.board.read())
    state = crew.board.read()
    known = left or _newest_merge(crew, state)
    if known is None or tip == known:
        return None
    found = _compare_tips(crew, state, known, tip)
    # Without the ref nobody knows whose commits came since the newest merge.
    return found if found.removed or (found.added and left is not None) else None


def drift_after_merge(crew: Crew, found: IntegrationDrift, commit: str) -> IntegrationDrift:
    """The same, without what comes back once ``commit`` is merged into integration. Raises GitFailed."""
    gone = _commits_between(crew, found.last_tip, found.tip, commit)
    return replace(found, removed=gone, lost_tasks=_lost_tasks(crew.board.read(), gone))


def recovery_commands(crew: Crew, found: IntegrationDrift, accept: str = "liza sync") -> str:
    """How to go back, and how to accept it, the likelier one first. Raises GitFailed."""
    if found.has_merged_since and not found.removed:
        # Back would be without what Liza has merged.
        return accept
    back = _rewind_command(crew, found)
    if found.lost_tasks:
        return f"{back}, or to accept it: {accept} --accept-moved"
    return f"{accept}, or to go back: {back}"


def is_last_tip(crew: Crew, commit: str) -> bool:
    """Whether Liza left integration at ``commit``, or does not know where. Raises GitFailed."""
    return _read_last_tip(crew) in (None, commit)


def record_last_tip(crew: Crew, tip: str) -> None:
    """Liza, or a person by a word to Liza, has put integration at ``tip``. Raises GitFailed."""
    crew.git.out("update-ref", LAST_INTEGRATION_REF, tip)


def record_merged_tip(crew: Crew, task: Task, expected: str, candidate: str) -> str | None:
    """Liza has moved integration from ``expected``; a line about what others had made of it before.

    Where merged tasks were lost it is not noted: that stands until somebody has gone back, or accepted it.
    Raises GitFailed.
    """
    left = _read_last_tip(crew)
    if left is None or left in (expected, candidate):
        record_last_tip(crew, candidate)
        return None
    found = _compare_tips(crew, crew.board.read(), left, expected)
    if not found.lost_tasks:
        record_last_tip(crew, candidate)
    if (found.lost_tasks and found.has_merged_since) or not (found.removed or found.added):
        return None
    onto = "commits that no verdict was about" if found.added else "less than had been merged"
    step = recovery_commands(crew, found) if found.lost_tasks else f"git log {left[:12]}..{expected[:12]}"
    return f"integration_moved  {task.id} was merged onto {onto}: {found.summary}. Next: {step}"


def _symbolic_rows(crew: Crew, state: State) -> Iterator[tuple[str, str, str]]:
    for ref, named in symbolic_refs.find_symbolic(crew.git, state.config.integration_branch).items():
        yield ref, symbolic_refs.describe_symbolic(ref, named), _plain_ref_command(crew, state, ref)


def _plain_ref_command(crew: Crew, state: State, ref: str) -> str:
    """The command that has a plain ref again, or none, in place of a symbolic one."""
    if ref == f"refs/heads/{state.config.integration_branch}":
        commit = _read_last_tip(crew) or _newest_merge(crew, state)
    else:
        commit = next((task.review_commit for task in state.tasks if ref == f"refs/heads/{branch_of(task.id)}"), None)
    if commit is None:
        return symbolic_refs.delete_command(ref)
    return symbolic_refs.plain_ref_command(ref, commit)


def _detect_integration_drift(crew: Crew, state: State, planted: tuple[str, ...]) -> RepositoryDrift:
    if symbolic_refs.symbolic_target(crew.git, f"refs/heads/{state.config.integration_branch}") is not None:
        return RepositoryDrift(planted=planted)
    if merges.branch_tip(crew.git, state.config.integration_branch) is None:
        gone = _integration_gone_error(crew, state)
        return RepositoryDrift(planted=planted, moved=gone.message, ways=gone.hint)
    branch = state.config.integration_branch
    absent = tuple(
        AbsentCheckout(str(one.directory), one.last_commit, branch)
        for one in absent_checkouts.find_lagging(crew.git, branch)
    )
    found = find_integration_drift(crew)
    if found is None:
        return RepositoryDrift(planted=planted, away=absent)
    return RepositoryDrift(
        planted=planted, away=absent, moved=found.message, lost=found.lost_tasks, ways=recovery_commands(crew, found)
    )


def _integration_gone_error(crew: Crew, state: State) -> Missing:
    branch = state.config.integration_branch
    start = _read_last_tip(crew) or _newest_merge(crew, state) or "HEAD"
    return Missing(f"the branch {branch} is gone", f"git branch {shlex.quote(branch)} {start[:12]}")


def _compare_tips(crew: Crew, state: State, left: str, tip: str) -> IntegrationDrift:
    gone, came = _commits_between(crew, left, tip), _commits_between(crew, tip, left)
    own = _liza_commits(crew, state) & came.keys() if came else set()
    if own:
        came = _commits_between(crew, tip, left, *own)
    return IntegrationDrift(state.config.integration_branch, left, tip, gone, came, _lost_tasks(state, gone), bool(own))


def _commits_between(crew: Crew, new: str, *old: str) -> dict[str, str]:
    """The commits of ``new`` that are in none of ``old``, newest first, each with a line about it."""
    words = crew.git.out("log", "--no-color", "--format=%H %h %an: %s", new, *(f"^{one}" for one in old))
    rows = (line.partition(" ")[::2] for line in words.split("\n") if line)
    return {commit: line[:80] for commit, line in rows}


def _lost_tasks(state: State, gone: Iterable[str]) -> tuple[str, ...]:
    """The merged tasks whose merge is gone, and whose commit is not there by another way."""
    commits = set(gone)
    merged = [task for task in state.tasks if task.status is Status.MERGED]
    return tuple(task.id for task in merged if {task.merge_commit, task.review_commit} <= commits)


def _liza_commits(crew: Crew, state: State) -> set[str]:
    """The commits that a merge of Liza's has put on integration, or is about to: only those that were tested."""
    ended = {task.merge_commit for task in state.tasks if task.merge_commit}
    return ended | set(merge_refs.list_tested(crew.git).values())


def _rewind_command(crew: Crew, found: IntegrationDrift) -> str:
    """The command that brings back what is gone, without taking away what Liza has merged since."""
    branch, commit = shlex.quote(found.branch), found.last_tip[:12]
    if found.has_merged_since:
        return f"git branch {branch}-before {commit} && liza sync {branch}-before"
    known = merges.find_branches(crew.git, found.branch).get(found.branch)
    if known is not None and known.checkout is not None:
        return f"git -C {shlex.quote(str(known.checkout))} reset --keep {commit}"
    return f"git branch -f {branch} {commit}"


def _newest_merge(crew: Crew, state: State) -> str | None:
    """The newest merge of a task that the board knows of and the repository still has."""
    known = [task.merge_commit for task in state.tasks if task.merge_commit and COMMIT.fullmatch(task.merge_commit)]
    if not known:
        return None
    return crew.git.out("rev-list", "--ignore-missing", "--topo-order", "-n1", *known) or None


def _read_last_tip(crew: Crew) -> str | None:
    if symbolic_refs.symbolic_target(crew.git, LAST_INTEGRATION_REF) is not None:
        return None
    done = crew.git.run("rev-parse", "-q", "--verify", f"{LAST_INTEGRATION_REF}^{{commit}}", codes=(0, 1))
    return done.stdout.decode().strip() or None


def _format_count(number: int, noun: str) -> str:
    return f"1 {noun} is" if number == 1 else f"{number} {noun}s are"


def _join_first(lines: Sequence[str], most: int = 3, between: str = "; ") -> str:
    return between.join(lines[:most]) + (f" and {len(lines) - most} more" if len(lines) > most else "")


def _stamp_file(path: Path) -> list[int] | None:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return [found.st_ino, found.st_size, found.st_mtime_ns]
