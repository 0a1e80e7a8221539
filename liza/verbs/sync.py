"""sync: bring a person's branch into integration, as a tested merge."""

from __future__ import annotations

import shlex
from contextlib import suppress
from dataclasses import dataclass, replace

from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.drift import drift
from liza.crew.drift.drift import IntegrationDrift
from liza.crew.merging import candidate, merge_outcomes
from liza.crew.merging.dead_mergers import recover_dead_merger
from liza.crew.project import proof_runner
from liza.crew.result import Result
from liza.repo.merge import merge_refs, merges
from liza.rules.errors import MergeConflict, Refused, UnknownId
from liza.rules.merging import merge_rules
from liza.system.file_lock import Lock

_CANDIDATE_NAME = "main.sync"
"""No task can have this name: ids have no dots."""


@dataclass(frozen=True)
class _SyncRequest:
    """What a person wants, and ``said``: ``commit``, the tip of the branch ``source``, in the branch ``into``; with
    ``accept_moved`` also where others have moved that branch and merged tasks are lost by it."""

    source: str
    commit: str
    into: str
    accept_moved: bool
    command: str


def sync(crew: Crew, branch: str | None = None, *, accept_moved: bool = False) -> Result:
    """Merge ``branch``, by default the one that is checked out, into integration once its tests pass on the merge.

    Where others have moved integration that is accepted, and told; where merged tasks are lost by it, only with
    ``accept_moved``. Raises Missing, Refused, UnknownId, MergeConflict, GitFailed; integration is where it was then.
    """
    by = require_person(crew, planner=False)
    state = crew.board.read()
    into = state.config.integration_branch
    drift.require_integration(crew, state)
    source = branch or _current_branch(crew, into)
    said = " ".join(["liza sync", *([branch] if branch else [])])
    commit = merges.branch_tip(crew.git, source)
    if commit is None:
        raise UnknownId(f"there is no branch {source!r}", "git branch")
    lock = Lock(crew.paths.merge_lock)
    if not lock.try_acquire():
        raise Refused("another merge is under way", "liza status")
    try:
        held = crew.with_lock(lock)
        recover_dead_merger(held, by)
        done = _merge_branch(held, _SyncRequest(source, commit, into, accept_moved, said), by)
    finally:
        lock.release()
    # What was told of integration is accepted now, and `status` need not wait for a supervisor to look again.
    with suppress(*merge_outcomes.CAUGHT_ERRORS):
        drift.current_drift(crew, crew.board.read())
    freed, failed = merge_outcomes.reconsidered(crew, "the merge")
    return replace(
        done, message="\n".join((done.message, *freed, *failed)), details={**done.details, "freed": list(freed)}
    )


def _current_branch(crew: Crew, into: str) -> str:
    if not crew.git.ok("symbolic-ref", "-q", "HEAD"):
        raise Refused("your checkout is at no branch", "liza sync main")
    found = crew.git.out("symbolic-ref", "--short", "HEAD")
    if found == into and drift.find_integration_drift(crew) is None:
        raise Refused(f"{into} itself is checked out", "liza sync main")
    return found


def _merge_branch(crew: Crew, wish: _SyncRequest, by: str) -> Result:
    source, commit, into = wish.source, wish.commit, wish.into
    for _ in range(merge_rules.MAX_CANDIDATES):
        moved = _check_accepted_move(crew, wish)
        expected = moved.tip if moved else drift.require_integration(crew, crew.board.read())
        if merges.contains(crew.git, into, commit):
            drift.record_last_tip(crew, expected)
            return _already_merged(crew, wish, moved, by)
        try:
            made = merges.build_candidate(crew.git, commit, expected, f"Merge {source} into {into}", _CANDIDATE_NAME)
        except MergeConflict as conflict:
            what = f"{source} conflicts with {into} in {', '.join(conflict.files)}"
            raise MergeConflict(what, conflict.files, f"git merge {into}, settle it there, then: liza sync") from None
        try:
            tested = _test_candidate(crew, wish, made, expected, by)
            done = merges.advance_branch(crew.git, into, made, expected)
            if done.outcome == "moved":
                drift.record_last_tip(crew, made)
        finally:
            merges.delete_candidate(crew.git, _CANDIDATE_NAME)
        if done.outcome == "waiting":
            names = ", ".join(done.files) or "files"
            raise Refused(f"{into} is checked out, and {names} is in the way", "git status")
        if done.outcome == "moved":
            more = {"branch": source, "merge_commit": made, "tested": tested}
            how = "its tests pass" if tested else "untested"
            told = f"{source} is in {into} as {made[:10]}, {how}"
            return _report_accepted(
                crew, Result("changed", None, None, f"git log --first-parent {into}", more, told), moved, by
            )
    raise Refused(f"{into} moved {merge_rules.MAX_CANDIDATES} times while the tests of the merge ran", wish.command)


def _already_merged(crew: Crew, wish: _SyncRequest, moved: IntegrationDrift | None, by: str) -> Result:
    more = {"branch": wish.source, "merge_commit": None, "tested": None}
    stands = "" if moved else f"{wish.into} stands where liza left it"
    told = stands if wish.source == wish.into else f"{wish.into} has all of {wish.source} already"
    return _report_accepted(
        crew, Result("changed" if moved else "unchanged", None, None, "liza status", more, told), moved, by
    )


def _check_accepted_move(crew: Crew, wish: _SyncRequest) -> IntegrationDrift | None:
    """What others have made of integration and is accepted with this; None where they made nothing of it.

    Raises Refused where merged tasks are lost by it and nobody has said that they may be.
    """
    moved = drift.find_integration_drift(crew)
    if moved is None:
        return None
    rest = drift.drift_after_merge(crew, moved, wish.commit)
    if rest.lost_tasks and not wish.accept_moved:
        raise Refused(moved.message, drift.recovery_commands(crew, moved, wish.command))
    return rest


def _report_accepted(crew: Crew, done: Result, moved: IntegrationDrift | None, by: str) -> Result:
    """The answer, with what was accepted, which is also written down."""
    if moved is None:
        return replace(done, details={**done.details, "accepted": None})
    stay = ", which stay MERGED on the board" if moved.lost_tasks else ""
    line = f"accepted: {moved.message}{stay}"
    crew.append_alert_log([f"integration_moved  {by} {line}"])
    more = {"from": moved.last_tip, "to": moved.tip, "lost": moved.lost_tasks}
    return replace(
        done, details={**done.details, "accepted": more}, message="\n".join(filter(None, (done.message, line)))
    )


def _test_candidate(crew: Crew, wish: _SyncRequest, made: str, expected: str, by: str) -> bool:
    """Whether there was a test to pass, of this candidate. Raises Refused when the candidate is red, or its tests take
    the branch away; it is where it was then."""
    into, log = wish.into, shlex.quote(str(crew.paths.logs / "merge-sync.log"))
    # What a person brings in may be the cure of tests that test another checkout: it is let in, as untested.
    if proof_runner.prove_if_due(crew, by, made) is not None:
        return False
    result = candidate.run_candidate_tests(crew, "sync", made, into)
    if result.moved_refs:
        crew.append_alert_log([f"tests_moved_refs  {result.told(f'the merge with {into}')}. Next: git reflog"])
    if result.rewound_from is not None:
        told = f"{result.told('this merge')}; {merge_outcomes.restore_integration(crew, result.rewound_from)}"
        raise Refused(f"{wish.source} is not merged: {told}", f"less {log}")
    if result.failure is not None:
        merges.move_branch_back(crew.git, into, made, expected)
        raise Refused(f"the merge with {into} is red: {result.failure}", f"less {log}")
    merge_refs.write_tested_ref(crew.git, _CANDIDATE_NAME, made)
    return result.tested
