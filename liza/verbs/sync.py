"""sync: bring a person's branch into integration, as a tested merge."""

from __future__ import annotations

import shlex
from contextlib import suppress
from dataclasses import dataclass, replace

from liza.crew.caller import human_or
from liza.crew.crew import Crew
from liza.crew.drift import drift
from liza.crew.drift.drift import Moved
from liza.crew.merging import candidate, merge_marks
from liza.crew.merging.dead_mergers import settle_dead_merger
from liza.crew.project import proof_again
from liza.crew.result import Result
from liza.repo.merge import merge_refs, merges
from liza.rules.errors import MergeConflict, Refused, UnknownId
from liza.rules.merging import merge_rules
from liza.system.file_lock import Lock

_CANDIDATE = "main.sync"
"""No task can have this name: ids have no dots."""


@dataclass(frozen=True)
class _Wish:
    """What a person wants, and ``said``: ``commit``, the tip of the branch ``source``, in the branch ``into``; with
    ``accept_moved`` also where others have moved that branch and merged tasks are lost by it."""

    source: str
    commit: str
    into: str
    accept_moved: bool
    said: str


def sync(crew: Crew, branch: str | None = None, *, accept_moved: bool = False) -> Result:
    """Merge ``branch``, by default the one that is checked out, into integration once its tests pass on the merge.

    Where others have moved integration that is accepted, and told; where merged tasks are lost by it, only with
    ``accept_moved``. Raises Missing, Refused, UnknownId, MergeConflict, GitFailed; integration is where it was then.
    """
    by = human_or(crew, planner=False)
    state = crew.board.read()
    into = state.config.integration_branch
    drift.need_integration(crew, state)
    source = branch or _checked_out(crew, into)
    said = " ".join(["liza sync", *([branch] if branch else [])])
    commit = merges.tip(crew.git, source)
    if commit is None:
        raise UnknownId(f"there is no branch {source!r}", "git branch")
    lock = Lock(crew.paths.merge_lock)
    if not lock.try_acquire():
        raise Refused("another merge is under way", "liza status")
    try:
        held = crew.holding(lock)
        settle_dead_merger(held, by)
        done = _merged(held, _Wish(source, commit, into, accept_moved, said), by)
    finally:
        lock.release()
    # What was told of integration is accepted now, and `status` need not wait for a supervisor to look again.
    with suppress(*merge_marks.FAILURES):
        drift.now(crew, crew.board.read())
    freed, failed = merge_marks.reconsidered(crew, "the merge")
    return replace(done, told="\n".join((done.told, *freed, *failed)), more={**done.more, "freed": list(freed)})


def _checked_out(crew: Crew, into: str) -> str:
    if not crew.git.ok("symbolic-ref", "-q", "HEAD"):
        raise Refused("your checkout is at no branch", "liza sync main")
    found = crew.git.out("symbolic-ref", "--short", "HEAD")
    if found == into and drift.moved(crew) is None:
        raise Refused(f"{into} itself is checked out", "liza sync main")
    return found


def _merged(crew: Crew, wish: _Wish, by: str) -> Result:
    source, commit, into = wish.source, wish.commit, wish.into
    for _ in range(merge_rules.MOST_ROUNDS):
        moved = _accepted(crew, wish)
        expected = moved.tip if moved else drift.need_integration(crew, crew.board.read())
        if merges.contains(crew.git, into, commit):
            drift.note_left(crew, expected)
            return _had_it(crew, wish, moved, by)
        try:
            made = merges.candidate(crew.git, commit, expected, f"Merge {source} into {into}", _CANDIDATE)
        except MergeConflict as conflict:
            what = f"{source} conflicts with {into} in {', '.join(conflict.files)}"
            raise MergeConflict(what, conflict.files, f"git merge {into}, settle it there, then: liza sync") from None
        try:
            tested = _test(crew, wish, made, expected, by)
            done = merges.advance(crew.git, into, made, expected)
            if done.outcome == "moved":
                drift.note_left(crew, made)
        finally:
            merges.drop_candidate(crew.git, _CANDIDATE)
        if done.outcome == "waiting":
            names = ", ".join(done.files) or "files"
            raise Refused(f"{into} is checked out, and {names} is in the way", "git status")
        if done.outcome == "moved":
            more = {"branch": source, "merge_commit": made, "tested": tested}
            how = "its tests pass" if tested else "untested"
            told = f"{source} is in {into} as {made[:10]}, {how}"
            return _told(crew, Result("changed", None, None, f"git log --first-parent {into}", more, told), moved, by)
    raise Refused(f"{into} moved {merge_rules.MOST_ROUNDS} times while the tests of the merge ran", wish.said)


def _had_it(crew: Crew, wish: _Wish, moved: Moved | None, by: str) -> Result:
    more = {"branch": wish.source, "merge_commit": None, "tested": None}
    stands = "" if moved else f"{wish.into} stands where liza left it"
    told = stands if wish.source == wish.into else f"{wish.into} has all of {wish.source} already"
    return _told(crew, Result("changed" if moved else "unchanged", None, None, "liza status", more, told), moved, by)


def _accepted(crew: Crew, wish: _Wish) -> Moved | None:
    """What others have made of integration and is accepted with this; None where they made nothing of it.

    Raises Refused where merged tasks are lost by it and nobody has said that they may be.
    """
    moved = drift.moved(crew)
    if moved is None:
        return None
    rest = drift.with_commit(crew, moved, wish.commit)
    if rest.lost and not wish.accept_moved:
        raise Refused(moved.told, drift.ways(crew, moved, wish.said))
    return rest


def _told(crew: Crew, done: Result, moved: Moved | None, by: str) -> Result:
    """The answer, with what was accepted, which is also written down."""
    if moved is None:
        return replace(done, more={**done.more, "accepted": None})
    stay = ", which stay MERGED on the board" if moved.lost else ""
    line = f"accepted: {moved.told}{stay}"
    crew.write_down([f"integration_moved  {by} {line}"])
    more = {"from": moved.left, "to": moved.tip, "lost": moved.lost}
    return replace(done, more={**done.more, "accepted": more}, told="\n".join(filter(None, (done.told, line))))


def _test(crew: Crew, wish: _Wish, made: str, expected: str, by: str) -> bool:
    """Whether there was a test to pass, of this candidate. Raises Refused when the candidate is red, or its tests take
    the branch away; it is where it was then."""
    into, log = wish.into, shlex.quote(str(crew.paths.logs / "merge-sync.log"))
    # What a person brings in may be the cure of tests that test another checkout: it is let in, as untested.
    if proof_again.elsewhere(crew, by, made) is not None:
        return False
    result = candidate.test(crew, "sync", made, into)
    if result.moved:
        crew.write_down([f"tests_moved_refs  {result.told(f'the merge with {into}')}. Next: git reflog"])
    if result.taken is not None:
        told = f"{result.told('this merge')}; {merge_marks.given_back(crew, result.taken)}"
        raise Refused(f"{wish.source} is not merged: {told}", f"less {log}")
    if result.red is not None:
        merges.put_back(crew.git, into, made, expected)
        raise Refused(f"the merge with {into} is red: {result.red}", f"less {log}")
    merge_refs.note_tested(crew.git, _CANDIDATE, made)
    return result.tested
