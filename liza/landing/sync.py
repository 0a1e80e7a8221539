"""sync: merge a person's branch into integration, after a test of the merge."""

from __future__ import annotations

import shlex
from contextlib import suppress

from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.git import git_refs, integration_tip, merges
from liza.git.branch_moves import MoveOutcome
from liza.git.integration_tip import find_landed
from liza.merging import candidate, drift, merge_outcomes, proof_runner
from liza.merging.merge_lock import hold_merge_lock, recover_dead_merger
from liza.merging.rules import merge_rules
from liza.merging.rules.repository_drift import IntegrationDrift
from liza.model import gates, targets
from liza.model.errors import MergeConflict, Refused, UnknownId
from liza.model.paths import branch_of
from liza.model.value_classes import Value, replace
from liza.text.undecoded import list_names

_CANDIDATE_NAME = "main.sync"
"""No task can have this name: ids have no dots."""


class _SyncRequest(Value):
    """Request to merge ``commit``, the tip of the branch ``source``, into the branch ``into``.

    ``command`` is the command that the person typed. ``accept_moved``: also if ``into`` was moved from outside and
    merged tasks are lost by that. ``untested``: also if the tests say nothing about the merge.
    """

    source: str
    commit: str
    into: str
    accept_moved: bool
    untested: bool
    command: str


def sync(crew: Crew, branch: str | None = None, *, accept_moved: bool = False, untested: bool = False) -> Result:
    """Merge ``branch``, by default the current one, into integration if the tests pass on the merge.

    A move of integration from outside is accepted and reported; if merged tasks are lost by it, only with
    ``accept_moved``. Raises Missing, Refused, UnknownId, MergeConflict, GitFailed: then integration is unchanged.
    """
    by = require_person(crew, planner=False)
    state = crew.board.read()
    into = state.config.integration_branch
    integration_tip.require_integration(crew.git, state)
    source = branch or _current_branch(crew, into)
    _refuse_crew_branch(source)
    command = shlex.join(["liza", "sync", *([branch] if branch else []), *(["--untested"] if untested else [])])
    commit = merges.branch_tip(crew.git, source)
    if commit is None:
        raise UnknownId(f"there is no branch {source!r}", git_refs.branch_command(crew.git, "liza sync", into))
    with hold_merge_lock(crew) as locked:
        recover_dead_merger(locked, by)
        result = _merge_branch(locked, _SyncRequest(source, commit, into, accept_moved, untested, command), by)
    # The move of integration is accepted now: update the cache, so that `status` does not wait for a supervisor.
    with suppress(*merge_outcomes.CAUGHT_ERRORS):
        drift.detect_drift(crew, crew.board.read())
    released, failed = merge_outcomes.reconsidered(crew, "the merge")
    return replace(
        result,
        message="\n".join((result.message, *released, *failed)),
        details={**result.details, "freed": list(released)},
    )


def _refuse_crew_branch(branch: str) -> None:
    """Raise Refused for a branch of a task or an epic: its commits come to integration with a verdict, or not yet."""
    name = branch.removeprefix("refs/heads/")
    if name.startswith(branch_of("")):
        task = name.removeprefix(branch_of(""))
        raise Refused(f"{branch} is the branch of a task: it is merged when it is approved", f"liza task show {task}")
    if targets.epic_of(name) is not None:
        raise Refused(f"{branch} is the branch of an epic: it lands when all its tasks are closed", "liza epics")


def _current_branch(crew: Crew, into: str) -> str:
    branch = git_refs.current_branch(crew.git)
    if branch is None or (branch == into and drift.find_integration_drift(crew) is None):
        message = "HEAD of your checkout is detached" if branch is None else f"{into} itself is checked out"
        raise Refused(message, git_refs.branch_command(crew.git, "liza sync", into))
    return branch


def _merge_branch(crew: Crew, request: _SyncRequest, by: str) -> Result:
    source, commit, into = request.source, request.commit, request.into
    for _ in range(merge_rules.MAX_CANDIDATES):
        moved = _check_accepted_move(crew, request)
        expected = moved.tip if moved else integration_tip.require_integration(crew.git, crew.board.read())
        if merges.contains(crew.git, into, commit):
            integration_tip.record_last_tip(crew.git, expected)
            return _already_merged(crew, request, moved, by)
        landed = find_landed(crew.git, commit, expected)
        base = None if landed == commit else landed
        try:
            candidate_commit = merges.build_candidate(
                crew.git, commit, expected, f"Merge {source} into {into}", _CANDIDATE_NAME, base
            )
        except MergeConflict as conflict:
            message = f"{source} conflicts with {into} in {list_names(conflict.files)}"
            merge = f"git merge {git_refs.type_revision(crew.git, into)}"
            if git_refs.current_branch(crew.git) != source:
                merge = f"git switch {shlex.quote(source)} && {merge}"
            step = f"{merge}, resolve the conflicts and commit, then: {request.command}"
            raise MergeConflict(message, conflict.files, step) from None
        try:
            tested, remarks = _test_candidate(crew, request, candidate_commit, expected, by)
            # Before the branch moves, also for an untested merge: who looks at the branch knows it as one of Liza.
            git_refs.write_tested_ref(crew.git, _CANDIDATE_NAME, candidate_commit)
            advance = merges.advance_branch(crew.git, into, candidate_commit, expected)
            if advance.outcome is MoveOutcome.MOVED:
                integration_tip.record_last_tip(crew.git, candidate_commit)
                with suppress(*merge_outcomes.CAUGHT_ERRORS):
                    proof_runner.note_changed_definitions(crew, by, expected)
        finally:
            merges.delete_candidate(crew.git, _CANDIDATE_NAME)
        if advance.outcome is MoveOutcome.WAITING:
            files, step = merges.describe_blocking(advance, request.command)
            raise Refused(f"{into} is checked out, and {files}", step)
        if advance.outcome is MoveOutcome.MOVED:
            details = {"branch": source, "merge_commit": candidate_commit, "tested": tested, "remarks": remarks}
            word = gates.describe_tested(tested, remarks)
            message = f"{source} is in {into} as {candidate_commit[:10]}, {word}"
            step = f"git log --first-parent {git_refs.type_revision(crew.git, into)}"
            return _report_accepted(crew, Result("changed", None, None, step, details, message), moved, by)
    raise Refused(f"{into} moved {merge_rules.MAX_CANDIDATES} times while the tests of the merge ran", request.command)


def _already_merged(crew: Crew, request: _SyncRequest, moved: IntegrationDrift | None, by: str) -> Result:
    details = {"branch": request.source, "merge_commit": None, "tested": None}
    unmoved = "" if moved else f"{request.into} is where liza left it"
    message = unmoved if request.source == request.into else f"{request.into} has all of {request.source} already"
    return _report_accepted(
        crew, Result("changed" if moved else "unchanged", None, None, "liza status", details, message), moved, by
    )


def _check_accepted_move(crew: Crew, request: _SyncRequest) -> IntegrationDrift | None:
    """Return the move of integration from outside that this sync accepts; None if it accepts no move.

    Raises Refused if merged tasks are lost by it and ``accept_moved`` is not set.
    """
    moved = drift.find_integration_drift(crew)
    if moved is None:
        return None
    remaining = drift.drift_after_merge(crew, moved, request.commit)
    if remaining.lost_tasks and not request.accept_moved:
        raise Refused(moved.message, drift.recovery_commands(crew.git, moved, request.command))
    return remaining


def _report_accepted(crew: Crew, result: Result, moved: IntegrationDrift | None, by: str) -> Result:
    """Add the accepted move to the result, and write it to the alert log."""
    if moved is None:
        return replace(result, details={**result.details, "accepted": None})
    stay = ", which stay merged on the board" if moved.lost_tasks else ""
    line = f"accepted: {moved.message}{stay}"
    crew.append_alert_log([f"integration_moved  {by} {line}"])
    accepted = {"from": moved.last_tip, "to": moved.tip, "lost": moved.lost_tasks}
    return replace(
        result,
        details={**result.details, "accepted": accepted},
        message="\n".join(filter(None, (result.message, line))),
    )


def _test_candidate(
    crew: Crew, request: _SyncRequest, candidate_commit: str, expected: str, by: str
) -> tuple[bool, tuple[str, ...]]:
    """Test a candidate. Return whether it is tested, and the remarks.

    Raises Refused if the candidate is red or its tests rewind the branch; the branch is then moved back.
    """
    into, log = request.into, shlex.quote(str(crew.paths.logs / "merge-sync.log"))
    # If the tests test another checkout, the person's branch may be the fix: it is merged as untested.
    if proof_runner.prove_if_due(crew, by, candidate_commit) is not None:
        return False, ()
    run = candidate.CandidateRun("sync", candidate_commit, expected, into, always=request.untested)
    result = candidate.run_candidate_tests(crew, run)
    if result.moved_refs:
        crew.append_alert_log([f"tests_moved_refs  {result.told(f'the merge with {into}')}. Next: git reflog"])
    if result.rewound_from is not None:
        message = f"{result.told('this merge')}; {merge_outcomes.restore_branch(crew, into, result.rewound_from)}"
        raise Refused(f"{request.source} is not merged: {message}", f"less {log}")
    if result.failure is not None:
        merges.move_branch_back(crew.git, into, candidate_commit, expected)
        raise Refused(f"the merge with {into} is red: {result.failure}", f"less {log}")
    if result.untested is not None and not request.untested:
        merges.move_branch_back(crew.git, into, candidate_commit, expected)
        hint = result.untested.hint or f"{request.command} --untested"
        raise Refused(f"the merge with {into} is untested: {result.untested.text}", hint)
    return result.tested and not result.remarks, result.remarks
