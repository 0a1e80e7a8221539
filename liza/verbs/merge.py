"""merge: merge an approved and tested commit into integration. Only supervisors and people call this."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress

from liza.crew.archive import archive_moves, archived_tasks
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.drift import drift
from liza.crew.merging import candidate, merge_outcomes, merge_turn
from liza.crew.merging.dead_mergers import recover_dead_merger
from liza.crew.merging.merge_lock import hold_merge_lock, hold_merge_lock_in_turn
from liza.crew.project import proof_runner
from liza.crew.result import Result, make_result
from liza.repo.merge import merge_refs, merges
from liza.repo.merge.branch_moves import MoveOutcome
from liza.rules.errors import LizaError, MergeConflict, Refused
from liza.rules.merging import merge_failures, merge_rules
from liza.rules.merging.merge_rules import MergeFailure, MergeFailureKind
from liza.rules.model import MergeInProgress, State, Status, Task
from liza.rules.paths import parse_agent_id
from liza.rules.project import test_proof
from liza.rules.tasks import claims
from liza.rules.value_classes import replace
from liza.system import crash_points


def merge(crew: Crew, task_id: str | None = None, supervisor: str | None = None) -> Result:
    """Merge the named APPROVED task, or the best one, for a person or for the supervisor of that agent.

    A failure is recorded on its task, which is returned to its coder or retried later; other tasks are merged
    meanwhile. Raises Refused, GitFailed, OSError; for a supervisor LockTimeout if another process merges.
    """
    person = require_person(crew, planner=False)
    if not supervisor:
        return _merge_and_archive(crew, person, task_id, hold_merge_lock(crew))
    try:
        return _merge_and_archive(crew, parse_agent_id(supervisor), task_id, hold_merge_lock_in_turn(crew))
    finally:
        merge_turn.pass_on_orphaned_turn(crew.paths, supervisor)


def _merge_and_archive(crew: Crew, by: str, task_id: str | None, lock: AbstractContextManager[Crew]) -> Result:
    with lock as locked:
        result = _merge(locked, by, task_id)
    # The merge is published: a failure from here on does not undo it.
    _, failed = merge_outcomes.reconsidered(crew, "the merge")
    archive_moves.archive_if_due(crew, merge_outcomes.merge_actor(by))
    return replace(result, message="\n".join(filter(None, (result.message, *failed))))


def _merge(crew: Crew, by: str, task_id: str | None) -> Result:
    try:
        recover_dead_merger(crew, by)
    except merge_outcomes.CAUGHT_ERRORS as error:
        if _mark_next_task(crew, by, task_id, error):
            raise _named(error) from error
        raise
    start = crew.board.read()
    retry_candidates(crew, by, task_id)
    before = crew.board.read()
    archived_tasks.refuse_archived(crew, before, [task_id] if task_id is not None else [])
    if task_id is not None and claims.get_task(before, task_id).status is Status.MERGED:
        return _merge_result(start, before, task_id)
    task = (
        merge_rules.get_approved_task(before, task_id)
        if task_id
        else merge_rules.next_to_merge(before, crew.clock.now())
    )
    if task is None:
        raise Refused(*_no_merge_reason(before))
    if task.merging is not None:
        # retry_candidates has just offered it: it waits until a person's changed files are out of the way.
        return _merge_result(start, before, task.id)
    try:
        proof_runner.require_proof(crew, by)
    except merge_outcomes.CAUGHT_ERRORS as error:
        # Tests that are known to test another checkout stop every merge and have an alarm of their own.
        if test_proof.tested_instead(crew.board.read().config) is None and _mark_next_task(crew, by, task.id, error):
            raise _named(error) from error
        raise
    _attempt(crew, by, task)
    return _merge_result(before, crew.board.read(), task.id)


def _no_merge_reason(state: State) -> tuple[str, str]:
    """Reason why no task can be merged now, and the hint."""
    set_aside = [task.id for task in state.tasks if task.status is Status.APPROVED and task.set_aside is not None]
    if not set_aside:
        return "no approved task is ready to merge", "liza task list"
    return f"no approved task is ready to merge; set aside: {', '.join(set_aside)}", f"liza merge {set_aside[0]}"


def _merge_result(before: State, after: State, task_id: str) -> Result:
    task = claims.get_task(after, task_id)
    if task.merging and task.merging.waiting:
        step = f"commit or put away {', '.join(task.merging.waiting)} in your checkout; it is then merged by itself"
    elif task.merge_commit:
        step = f"git log --first-parent {after.config.integration_branch}"
    elif task.status is Status.INTEGRATION_FAILED:
        step = merge_failures.inspect_command(task)
    else:
        step = f"liza task show {task_id}"
    return make_result(before, after, task_id, step, merge_commit=task.merge_commit, tested=task.tested)


def _mark_next_task(crew: Crew, by: str, task_id: str | None, error: LizaError | OSError) -> bool:
    """Record an error that kept any merge from starting on the task that was next; return whether it was recorded."""
    state = crew.board.read()
    task = state.task(task_id) if task_id else merge_rules.next_to_merge(state, crew.clock.now())
    if task is not None and merge_outcomes.is_task_error(crew, error):
        with suppress(Refused):
            merge_outcomes.record_failure(crew, by, task, merge_outcomes.classify_error(crew, task, error))
            return True
    return False


def _named(error: LizaError | OSError) -> LizaError:
    return merge_outcomes.named(error, "liza status")


def retry_candidates(crew: Crew, by: str, task_id: str | None = None) -> None:
    """Publish candidates that were recorded as tested but not published; they are not tested again.

    A failure is recorded on its task and the others are tried all the same. A task that is set aside is tried when its
    delay is over, or when it is ``task_id``.
    """
    for task in crew.board.read().tasks:
        if task.merging is None or (task.id != task_id and merge_rules.is_paused(task, crew.clock.now())):
            continue
        try:
            _publish_candidate(crew, by, task, task.merging)
        except merge_outcomes.CAUGHT_ERRORS as error:
            if not _mark_failure(crew, by, task, error):
                raise
            if task.id == task_id:
                raise _named(error) from error


def _attempt(crew: Crew, by: str, task: Task) -> None:
    """Merge one task and record a failure on it. Raises the error if the task is still APPROVED or the error is not
    the task's."""
    try:
        _merge_one(crew, by, task)
    except merge_outcomes.CAUGHT_ERRORS as error:
        if not _mark_failure(crew, by, task, error):
            raise
        after = claims.get_task(crew.board.read(), task.id)
        if after.status is Status.APPROVED:
            raise _named(error) from error
    except (SystemExit, KeyboardInterrupt):
        # Stopped on purpose: it must not count as a crash of the merger.
        with (
            suppress(*merge_outcomes.CAUGHT_ERRORS),
            crew.change(merge_outcomes.merge_actor(by), "candidate dropped", task.id) as tx,
        ):
            tx.state = merge_rules.drop_candidate(tx.state, task.id)
        raise


def _mark_failure(crew: Crew, by: str, task: Task, error: LizaError | OSError) -> bool:
    """Record a failed merge on its task; return whether the error belongs to the task and was recorded."""
    if not merge_outcomes.is_task_error(crew, error):
        return False
    failure = (
        error.merge_failure if isinstance(error, _ExternalFailure) else merge_outcomes.classify_error(crew, task, error)
    )
    with suppress(Refused):
        merge_outcomes.record_failure(crew, by, task, failure)
        return True
    return False


class _ExternalFailure(Refused):
    """Changes of integration from outside prevent the merge for now; the task is not to blame."""

    def __init__(self, task: Task, kind: MergeFailureKind, words: str) -> None:
        super().__init__(words, f"liza merge {task.id}")
        self.merge_failure = MergeFailure(kind, words)


def _moving_branch_error(task: Task, branch: str, tips: list[str]) -> _ExternalFailure:
    """Build the error for an integration branch that moved during each test run."""
    path = " → ".join(tip[:10] for tip in tips)
    message = f"{branch} moved {len(tips) - 1} times while the tests of {task.id} ran ({path})"
    return _ExternalFailure(task, MergeFailureKind.MOVING, message)


def _merge_one(crew: Crew, by: str, task: Task) -> None:
    tips = []
    for _ in range(merge_rules.MAX_CANDIDATES):
        tips.append(_tip(crew))
        tested = _make_tested_candidate(crew, by, task, tips[-1])
        if tested is None or _publish_candidate(crew, by, task, tested):
            return
    raise _moving_branch_error(task, _integration_branch(crew), [*tips, _tip(crew)])


def _make_tested_candidate(crew: Crew, by: str, task: Task, expected: str) -> MergeInProgress | None:
    """Build and test a candidate on top of ``expected``, and record it as tested; None if it failed."""
    try:
        merging = _candidate(crew, task, expected)
    except MergeConflict as conflict:
        merge_outcomes.return_to_coder(
            crew, by, task, f"conflict with {_integration_branch(crew)} in {', '.join(conflict.files)}"
        )
        return None
    crash_points.point("merge", "candidate")
    with crew.change(merge_outcomes.merge_actor(by), "candidate made", task.id) as tx:
        tx.state = merge_rules.begin_merge(tx.state, task.id, merging)
    crash_points.point("merge", "begun")
    result = candidate.run_candidate_tests(crew, task.id, merging.candidate, _integration_branch(crew))
    crash_points.point("merge", "tested")
    merge_outcomes.report_moved_refs(crew, by, task, result)
    if result.rewound_from is not None:
        restored = merge_outcomes.restore_integration(crew, result.rewound_from)
        message = f"{result.told(task.id)}; {restored} (if you moved it, move it again while nothing is merged)"
        merge_outcomes.return_to_coder(
            crew, by, task, message if result.failure is None else f"{message}\n{result.failure}"
        )
        return None
    if result.failure is not None:
        merge_outcomes.undo_untested_move(crew, task, merging)
        _refuse_red_base(crew, task, expected)
        merge_outcomes.return_to_coder(crew, by, task, result.failure)
        return None
    # Write both records, the ref and the board, before the branch moves: recovery of a dead merger requires both.
    merge_refs.write_tested_ref(crew.git, task.id, merging.candidate)
    crash_points.point("merge", "noted")
    event = "tests passed" if result.tested else "no tests to run"
    with crew.change(merge_outcomes.merge_actor(by), event, task.id) as tx:
        tx.state = merge_rules.record_test_result(tx.state, task.id, result.tested)
    crash_points.point("merge", "passed")
    return claims.get_task(tx.state, task.id).merging


def _refuse_red_base(crew: Crew, task: Task, expected: str) -> None:
    """Test integration alone if it was moved from outside: if it is red, no task is to blame.

    Raises _ExternalFailure.
    """
    if drift.is_last_tip(crew, expected):
        return
    branch = _integration_branch(crew)
    result = candidate.run_candidate_tests(crew, f"{branch}-alone", expected, branch)
    if result.moved_refs:
        crew.append_alert_log([f"tests_moved_refs  {result.told(f'{branch} alone')}. Next: git reflog"])
    if result.rewound_from is not None:
        restored = merge_outcomes.restore_integration(crew, result.rewound_from)
        message = f"{result.told(f'{branch} without {task.id}')}; {restored}"
        raise _ExternalFailure(
            task, MergeFailureKind.BASE_RED, message if result.failure is None else f"{message}\n{result.failure}"
        )
    if result.failure is not None:
        message = f"{branch} is red without {task.id}: others moved it to {expected[:10]}; {result.failure}"
        raise _ExternalFailure(task, MergeFailureKind.BASE_RED, message)


def _candidate(crew: Crew, task: Task, expected: str) -> MergeInProgress:
    assert task.review_commit is not None
    title = task.description.strip().splitlines()[0][:72] if task.description.strip() else task.id
    commit = merges.build_candidate(crew.git, task.review_commit, expected, f"Merge {task.id}: {title}", task.id)
    return MergeInProgress(candidate=commit, expected=expected)


def _publish_candidate(crew: Crew, by: str, task: Task, merging: MergeInProgress) -> bool:
    """Advance integration to a tested candidate; return False if it has moved and a new candidate is needed."""
    advance = merges.advance_branch(crew.git, _integration_branch(crew), merging.candidate, merging.expected)
    crash_points.point("merge", "advanced")
    if advance.outcome is MoveOutcome.MOVED:
        merge_outcomes.finish_merge(crew, by, task, merging)
        return True
    waiting = advance.outcome is MoveOutcome.WAITING
    event = "waits for files" if waiting else "candidate dropped"
    with crew.change(merge_outcomes.merge_actor(by), event, task.id) as tx:
        if waiting:
            tx.state = merge_rules.wait_for_files(tx.state, task.id, advance.files)
        else:
            tx.state = merge_rules.drop_candidate(tx.state, task.id)
    return waiting


def _tip(crew: Crew) -> str:
    return drift.require_integration(crew, crew.board.read())


def _integration_branch(crew: Crew) -> str:
    return crew.board.read().config.integration_branch
