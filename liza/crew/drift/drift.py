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
from liza.crew.drift import drift_file, ref_drift
from liza.crew.drift.drift_file import LastLook, Stamp
from liza.repo import reflogs, symbolic_refs
from liza.repo.config_pins import Pins, config_files, git_dirs
from liza.repo.merge import absent_checkouts, merge_refs, merges
from liza.repo.runner import COMMIT, Git
from liza.rules.errors import DiskRefused, Missing
from liza.rules.merging.merge_alarms import AbsentCheckout
from liza.rules.model import State, Status, Task
from liza.rules.paths import branch_of
from liza.rules.reports.intrusions import Repository, Symbolic

LEFT = merges.LEFT


@dataclass(frozen=True)
class Moved:
    """Integration as others have moved it: from ``left`` to ``tip``. ``gone`` and ``came`` are the commits that it has
    no longer, and those that others put there, newest first, each with a line about it; ``lost`` the merged tasks that
    are gone; ``merged`` whether Liza has merged onto it since."""

    branch: str
    left: str
    tip: str
    gone: dict[str, str]
    came: dict[str, str]
    lost: tuple[str, ...]
    merged: bool

    @property
    def words(self) -> str:
        """From where to where, and what that means for what was merged."""
        one_way = bool(self.gone) != (bool(self.came) or self.merged)
        way = "" if not one_way else "back " if self.gone else "on "
        told = []
        if self.lost:
            told.append(f"{_count(len(self.lost), 'merged task')} not in it any more: {_some(self.lost, 5, ', ')}")
        elif self.gone:
            told.append(f"{_count(len(self.gone), 'commit')} not in it any more: {_some([*self.gone.values()])}")
        if self.came:
            told.append(f"{_count(len(self.came), 'commit')} new, without a verdict: {_some([*self.came.values()])}")
        return f"from {self.left[:10]} {way}to {self.tip[:10]}: {'. '.join(told) or 'nothing is lost by it'}"

    @property
    def told(self) -> str:
        """A sentence for people."""
        return f"{self.branch} was moved outside of liza, {self.words}"


def now(crew: Crew, state: State) -> Repository:
    """What stands: as the last look saw it, while none of the files that it came from has changed; else looked at
    afresh. Raises LizaError, OSError."""
    last = drift_file.read(crew.paths)
    return last.seen if last.stamp == stamp(crew, state) else look(crew, state)


def look(crew: Crew, state: State) -> Repository:
    """What stands, looked at afresh, and kept for the others. Raises LizaError, OSError."""
    before = stamp(crew, state)
    planted = Pins.load(crew.paths.pins).planted(crew.git)
    links = tuple(Symbolic(*row) for row in _symbolic(crew, state))
    trespasses, branches = ref_drift.found(crew, state, drift_file.read(crew.paths).branches)
    seen = structs.replace(_of_integration(crew, state, planted), trespasses=trespasses, symbolic=links)
    # It saves others a look: a disk that does not take it changes nothing of what was seen.
    with suppress(OSError, DiskRefused):
        drift_file.write(crew.paths, LastLook(before, seen, branches))
    return seen


def stamp(crew: Crew, state: State) -> Stamp:
    """It changes when there is something new to look at, and costs no git where ``.git`` is a directory.

    Raises LizaError, OSError.
    """
    git = Git(crew.paths.root)
    place = crew.paths.root / ".git"
    plain = git if place.is_file() else git.inside(crew.paths.root, place, place)
    common = git_dirs(plain)[1]
    branch = state.config.integration_branch
    names = (
        "hooks", "packed-refs", "refs/replace", f"refs/heads/{branch}", LEFT, "reftable/tables.list", "shallow",
        "info/grafts", "objects/info/alternates", "commondir",
    )  # fmt: skip
    left = sorted(common.glob(f"worktrees/*/{absent_checkouts.LEFT}"))
    files = (*config_files(plain), *(common / name for name in names), crew.paths.pins, *left)
    return [*(_stat(path) for path in files), reflogs.stamp(common), symbolic_refs.stamp(common, branch)]


def need_integration(crew: Crew, state: State) -> str:
    """The commit that integration stands at. Raises Missing, with the way to have the branch again, or to have it plain
    where it is a symbolic ref."""
    ref = f"refs/heads/{state.config.integration_branch}"
    named = symbolic_refs.target(crew.git, ref)
    if named is not None:
        raise Missing(symbolic_refs.told(ref, named), _plain(crew, state, ref))
    tip = merges.tip(crew.git, state.config.integration_branch)
    if tip is None:
        raise _gone(crew, state)
    return tip


def moved(crew: Crew) -> Moved | None:
    """How integration stands elsewhere than Liza left it; None where it does not. Raises Missing where it is gone."""
    # In this order: whoever merges notes the candidate on the board, moves the branch, then notes where it was left.
    left = _left(crew)
    tip = need_integration(crew, crew.board.read())
    state = crew.board.read()
    known = left or _newest_merge(crew, state)
    if known is None or tip == known:
        return None
    found = _compared(crew, state, known, tip)
    # Without the ref nobody knows whose commits came since the newest merge.
    return found if found.gone or (found.came and left is not None) else None


def with_commit(crew: Crew, found: Moved, commit: str) -> Moved:
    """The same, without what comes back once ``commit`` is merged into integration. Raises GitFailed."""
    gone = _between(crew, found.left, found.tip, commit)
    return replace(found, gone=gone, lost=_lost(crew.board.read(), gone))


def ways(crew: Crew, found: Moved, accept: str = "liza sync") -> str:
    """How to go back, and how to accept it, the likelier one first. Raises GitFailed."""
    if found.merged and not found.gone:
        # Back would be without what Liza has merged.
        return accept
    back = _back(crew, found)
    if found.lost:
        return f"{back}, or to accept it: {accept} --accept-moved"
    return f"{accept}, or to go back: {back}"


def is_left_at(crew: Crew, commit: str) -> bool:
    """Whether Liza left integration at ``commit``, or does not know where. Raises GitFailed."""
    return _left(crew) in (None, commit)


def note_left(crew: Crew, tip: str) -> None:
    """Liza, or a person by a word to Liza, has put integration at ``tip``. Raises GitFailed."""
    crew.git.out("update-ref", LEFT, tip)


def note_merged(crew: Crew, task: Task, expected: str, candidate: str) -> str | None:
    """Liza has moved integration from ``expected``; a line about what others had made of it before.

    Where merged tasks were lost it is not noted: that stands until somebody has gone back, or accepted it.
    Raises GitFailed.
    """
    left = _left(crew)
    if left is None or left in (expected, candidate):
        note_left(crew, candidate)
        return None
    found = _compared(crew, crew.board.read(), left, expected)
    if not found.lost:
        note_left(crew, candidate)
    if (found.lost and found.merged) or not (found.gone or found.came):
        return None
    onto = "commits that no verdict was about" if found.came else "less than had been merged"
    step = ways(crew, found) if found.lost else f"git log {left[:12]}..{expected[:12]}"
    return f"integration_moved  {task.id} was merged onto {onto}: {found.words}. Next: {step}"


def _symbolic(crew: Crew, state: State) -> Iterator[tuple[str, str, str]]:
    for ref, named in symbolic_refs.found(crew.git, state.config.integration_branch).items():
        yield ref, symbolic_refs.told(ref, named), _plain(crew, state, ref)


def _plain(crew: Crew, state: State, ref: str) -> str:
    """The command that has a plain ref again, or none, in place of a symbolic one."""
    if ref == f"refs/heads/{state.config.integration_branch}":
        commit = _left(crew) or _newest_merge(crew, state)
    else:
        commit = next((task.review_commit for task in state.tasks if ref == f"refs/heads/{branch_of(task.id)}"), None)
    if commit is None:
        return symbolic_refs.deleting(ref)
    return symbolic_refs.putting(ref, commit)


def _of_integration(crew: Crew, state: State, planted: tuple[str, ...]) -> Repository:
    if symbolic_refs.target(crew.git, f"refs/heads/{state.config.integration_branch}") is not None:
        return Repository(planted=planted)
    if merges.tip(crew.git, state.config.integration_branch) is None:
        gone = _gone(crew, state)
        return Repository(planted=planted, moved=gone.message, ways=gone.hint)
    branch = state.config.integration_branch
    absent = tuple(
        AbsentCheckout(str(one.place), one.left, branch) for one in absent_checkouts.lagging(crew.git, branch)
    )
    found = moved(crew)
    if found is None:
        return Repository(planted=planted, away=absent)
    return Repository(planted=planted, away=absent, moved=found.told, lost=found.lost, ways=ways(crew, found))


def _gone(crew: Crew, state: State) -> Missing:
    branch = state.config.integration_branch
    start = _left(crew) or _newest_merge(crew, state) or "HEAD"
    return Missing(f"the branch {branch} is gone", f"git branch {shlex.quote(branch)} {start[:12]}")


def _compared(crew: Crew, state: State, left: str, tip: str) -> Moved:
    gone, came = _between(crew, left, tip), _between(crew, tip, left)
    own = _own(crew, state) & came.keys() if came else set()
    if own:
        came = _between(crew, tip, left, *own)
    return Moved(state.config.integration_branch, left, tip, gone, came, _lost(state, gone), bool(own))


def _between(crew: Crew, new: str, *old: str) -> dict[str, str]:
    """The commits of ``new`` that are in none of ``old``, newest first, each with a line about it."""
    words = crew.git.out("log", "--no-color", "--format=%H %h %an: %s", new, *(f"^{one}" for one in old))
    rows = (line.partition(" ")[::2] for line in words.split("\n") if line)
    return {commit: line[:80] for commit, line in rows}


def _lost(state: State, gone: Iterable[str]) -> tuple[str, ...]:
    """The merged tasks whose merge is gone, and whose commit is not there by another way."""
    commits = set(gone)
    merged = [task for task in state.tasks if task.status is Status.MERGED]
    return tuple(task.id for task in merged if {task.merge_commit, task.review_commit} <= commits)


def _own(crew: Crew, state: State) -> set[str]:
    """The commits that a merge of Liza's has put on integration, or is about to: only those that were tested."""
    ended = {task.merge_commit for task in state.tasks if task.merge_commit}
    return ended | set(merge_refs.tested(crew.git).values())


def _back(crew: Crew, found: Moved) -> str:
    """The command that brings back what is gone, without taking away what Liza has merged since."""
    branch, commit = shlex.quote(found.branch), found.left[:12]
    if found.merged:
        return f"git branch {branch}-before {commit} && liza sync {branch}-before"
    known = merges.branches(crew.git, found.branch).get(found.branch)
    if known is not None and known.checkout is not None:
        return f"git -C {shlex.quote(str(known.checkout))} reset --keep {commit}"
    return f"git branch -f {branch} {commit}"


def _newest_merge(crew: Crew, state: State) -> str | None:
    """The newest merge of a task that the board knows of and the repository still has."""
    known = [task.merge_commit for task in state.tasks if task.merge_commit and COMMIT.fullmatch(task.merge_commit)]
    if not known:
        return None
    return crew.git.out("rev-list", "--ignore-missing", "--topo-order", "-n1", *known) or None


def _left(crew: Crew) -> str | None:
    if symbolic_refs.target(crew.git, LEFT) is not None:
        return None
    done = crew.git.run("rev-parse", "-q", "--verify", f"{LEFT}^{{commit}}", codes=(0, 1))
    return done.stdout.decode().strip() or None


def _count(number: int, noun: str) -> str:
    return f"1 {noun} is" if number == 1 else f"{number} {noun}s are"


def _some(lines: Sequence[str], most: int = 3, between: str = "; ") -> str:
    return between.join(lines[:most]) + (f" and {len(lines) - most} more" if len(lines) > most else "")


def _stat(path: Path) -> list[int] | None:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return [found.st_ino, found.st_size, found.st_mtime_ns]
