"""merge: bring an approved and tested commit into integration. Only supervisors and people say this."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.drift import drift
from liza.crew.merging import candidate, merge_outcomes
from liza.crew.merging.dead_mergers import recover_dead_merger
from liza.crew.project import proof_runner
from liza.crew.result import Result, make_result
from liza.repo.merge import merge_refs, merges
from liza.rules.errors import LizaError, MergeConflict, Refused
from liza.rules.merging import merge_failures, merge_rules
from liza.rules.merging.merge_rules import MergeFailure, MergeFailureKind
from liza.rules.model import MergeInProgress, State, Status, Task
from liza.rules.paths import parse_agent_id
from liza.rules.project import test_proof
from liza.rules.tasks import claims
from liza.system import crash_points
from liza.system.file_lock import Lock


def merge(crew: Crew, task_id: str | None = None, supervisor: str | None = None) -> Result:
    """Merge the named, or the best, APPROVED task, for a person or for the supervisor of that agent.

    A failure leaves a mark on its task, which then goes back to its coder or is tried again later; others are merged
    meanwhile. Raises Refused, GitFailed, OSError.
    """
    person = require_person(crew, planner=False)
    by = parse_agent_id(supervisor) if supervisor else person
    lock = Lock(crew.paths.merge_lock)
    if not lock.try_acquire():
        raise Refused("another merge is under way", "liza status")
    try:
        done = _merge(crew.with_lock(lock), by, task_id)
    finally:
        lock.release()
    # What is merged stays merged, whatever fails now.
    _, failed = merge_outcomes.reconsidered(crew, "the merge")
    return replace(done, message="\n".join(filter(None, (done.message, *failed))))


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
        # It was offered just now, and waits for files of a person.
        return _merge_result(start, before, task.id)
    try:
        proof_runner.require_proof(crew, by)
    except merge_outcomes.CAUGHT_ERRORS as error:
        # Tests that are known to test another checkout stop every merge, and are told of by themselves.
        if test_proof.tested_instead(crew.board.read().config) is None and _mark_next_task(crew, by, task.id, error):
            raise _named(error) from error
        raise
    _attempt(crew, by, task)
    return _merge_result(before, crew.board.read(), task.id)


def _no_merge_reason(state: State) -> tuple[str, str]:
    """Why nothing is merged now, and one command."""
    aside = [task.id for task in state.tasks if task.status is Status.APPROVED and task.set_aside is not None]
    if not aside:
        return "no task is approved and waits to be merged", "liza task list"
    return f"no task is approved and waits to be merged; set aside: {', '.join(aside)}", f"liza merge {aside[0]}"


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
    """No merge could even begin: mark that on the task that would have been merged; whether it was done."""
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
    """Candidates that were recorded as tested and not published: the same candidate, nothing tested again.

    One that fails is marked, and the others are offered all the same. One that is set aside is offered when its pause
    is over, or when it is the named one.
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
    """Merge one task; a failure of it is marked. Raises what keeps the task from being merged by a later try."""
    try:
        _merge_one(crew, by, task)
    except merge_outcomes.CAUGHT_ERRORS as error:
        if not _mark_failure(crew, by, task, error):
            raise
        after = claims.get_task(crew.board.read(), task.id)
        if after.status is Status.APPROVED:
            raise _named(error) from error
    except (SystemExit, KeyboardInterrupt):
        # Stopped on purpose: that is no merger that died.
        with (
            suppress(*merge_outcomes.CAUGHT_ERRORS),
            crew.change(merge_outcomes.merge_actor(by), "candidate dropped", task.id) as tx,
        ):
            tx.state = merge_rules.drop_candidate(tx.state, task.id)
        raise


def _mark_failure(crew: Crew, by: str, task: Task, error: LizaError | OSError) -> bool:
    """Mark the task whose merge failed; whether that was the thing to do, and it could be done."""
    if not merge_outcomes.is_task_error(crew, error):
        return False
    trouble = (
        error.merge_failure if isinstance(error, _ExternalFailure) else merge_outcomes.classify_error(crew, task, error)
    )
    with suppress(Refused):
        merge_outcomes.record_failure(crew, by, task, trouble)
        return True
    return False


class _ExternalFailure(Refused):
    """What others did to integration keeps the task from being merged now."""

    def __init__(self, task: Task, kind: MergeFailureKind, words: str) -> None:
        super().__init__(words, f"liza merge {task.id}")
        self.merge_failure = MergeFailure(kind, words)


def _moving_branch_error(task: Task, branch: str, tips: list[str]) -> _ExternalFailure:
    """Integration moved each time while tests ran."""
    way = " → ".join(tip[:10] for tip in tips)
    words = f"{branch} moved {len(tips) - 1} times while the tests of {task.id} ran ({way})"
    return _ExternalFailure(task, MergeFailureKind.MOVING, words)


def _merge_one(crew: Crew, by: str, task: Task) -> None:
    tips = []
    for _ in range(merge_rules.MAX_CANDIDATES):
        tips.append(_tip(crew))
        made = _make_tested_candidate(crew, by, task, tips[-1])
        if made is None or _publish_candidate(crew, by, task, made):
            return
    raise _moving_branch_error(task, _integration_branch(crew), [*tips, _tip(crew)])


def _make_tested_candidate(crew: Crew, by: str, task: Task, expected: str) -> MergeInProgress | None:
    """A candidate on top of ``expected`` that may be published, recorded as that; None where it failed."""
    try:
        made = _candidate(crew, task, expected)
    except MergeConflict as conflict:
        merge_outcomes.return_to_coder(
            crew, by, task, f"conflict with {_integration_branch(crew)} in {', '.join(conflict.files)}"
        )
        return None
    crash_points.point("merge", "candidate")
    with crew.change(merge_outcomes.merge_actor(by), "candidate made", task.id) as tx:
        tx.state = merge_rules.begin_merge(tx.state, task.id, made)
    crash_points.point("merge", "begun")
    result = candidate.run_candidate_tests(crew, task.id, made.candidate, _integration_branch(crew))
    crash_points.point("merge", "tested")
    merge_outcomes.report_moved_refs(crew, by, task, result)
    if result.rewound_from is not None:
        back = merge_outcomes.restore_integration(crew, result.rewound_from)
        what = f"{result.told(task.id)}; {back} (if you moved it, move it again while nothing is merged)"
        merge_outcomes.return_to_coder(crew, by, task, what if result.failure is None else f"{what}\n{result.failure}")
        return None
    if result.failure is not None:
        merge_outcomes.undo_untested_move(crew, task, made)
        _refuse_red_base(crew, task, expected)
        merge_outcomes.return_to_coder(crew, by, task, result.failure)
        return None
    # Both records before the branch moves: whoever settles a dead merger believes nothing less.
    merge_refs.write_tested_ref(crew.git, task.id, made.candidate)
    crash_points.point("merge", "noted")
    passed = "tests passed" if result.tested else "no tests to run"
    with crew.change(merge_outcomes.merge_actor(by), passed, task.id) as tx:
        tx.state = merge_rules.record_test_result(tx.state, task.id, result.tested)
    crash_points.point("merge", "passed")
    return claims.get_task(tx.state, task.id).merging


def _refuse_red_base(crew: Crew, task: Task, expected: str) -> None:
    """Where others have moved integration, test that alone: if it is red, no task is to blame. Raises _NotItsFault."""
    if drift.is_last_tip(crew, expected):
        return
    branch = _integration_branch(crew)
    result = candidate.run_candidate_tests(crew, f"{branch}-alone", expected, branch)
    if result.moved_refs:
        crew.append_alert_log([f"tests_moved_refs  {result.told(f'{branch} alone')}. Next: git reflog"])
    if result.rewound_from is not None:
        words = f"{result.told(f'{branch} without {task.id}')}; {merge_outcomes.restore_integration(crew, result.rewound_from)}"
        raise _ExternalFailure(
            task, MergeFailureKind.BASE_RED, words if result.failure is None else f"{words}\n{result.failure}"
        )
    if result.failure is not None:
        words = f"{branch} is red without {task.id}: others moved it to {expected[:10]}; {result.failure}"
        raise _ExternalFailure(task, MergeFailureKind.BASE_RED, words)


def _candidate(crew: Crew, task: Task, expected: str) -> MergeInProgress:
    assert task.review_commit is not None
    title = task.description.strip().splitlines()[0][:72] if task.description.strip() else task.id
    made = merges.build_candidate(crew.git, task.review_commit, expected, f"Merge {task.id}: {title}", task.id)
    return MergeInProgress(candidate=made, expected=expected)


def _publish_candidate(crew: Crew, by: str, task: Task, made: MergeInProgress) -> bool:
    """Offer a tested candidate to integration; whether this attempt is at its end."""
    done = merges.advance_branch(crew.git, _integration_branch(crew), made.candidate, made.expected)
    crash_points.point("merge", "advanced")
    if done.outcome == "moved":
        merge_outcomes.finish_merge(crew, by, task, made)
        return True
    waiting = done.outcome == "waiting"
    event = "waits for files" if waiting else "candidate dropped"
    with crew.change(merge_outcomes.merge_actor(by), event, task.id) as tx:
        if waiting:
            tx.state = merge_rules.wait_for_files(tx.state, task.id, done.files)
        else:
            tx.state = merge_rules.drop_candidate(tx.state, task.id)
    return waiting


def _tip(crew: Crew) -> str:
    return crew.git.out("rev-parse", "--verify", f"refs/heads/{_integration_branch(crew)}")


def _integration_branch(crew: Crew) -> str:
    return crew.board.read().config.integration_branch
