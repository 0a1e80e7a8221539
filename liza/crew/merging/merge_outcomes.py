"""Record the outcome of a merge on the board (merged, failed, to be retried) and clean up after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from liza.crew import draft_specs
from liza.crew.crew import Crew
from liza.crew.merging import logged_alarms, target_tips
from liza.crew.merging.candidate import CandidateResult
from liza.repo.merge import merge_refs, merges
from liza.rules.errors import (
    BoardInconsistent,
    LizaError,
    LockTimeout,
    Missing,
    NotRegularFile,
    Refused,
    SharedPathBlocked,
    SystemRefused,
)
from liza.rules.history_events import HistoryEvent
from liza.rules.merging import merge_alarms, merge_batches, merge_rules, targets
from liza.rules.merging.merge_batches import Batch
from liza.rules.merging.merge_rules import MergeFailure, MergeFailureKind
from liza.rules.model import Status, Task
from liza.rules.paths import is_person
from liza.rules.reports.narration import LIZA
from liza.rules.transitions import Invocation, add_event
from liza.system import crash_points
from liza.system.files import to_write_failed

CAUGHT_ERRORS = (LizaError, OSError)
_GENERAL_ERRORS = (BoardInconsistent, LockTimeout, Missing, SharedPathBlocked)
"""Errors that affect every merge and are reported elsewhere: the board, its lock, the disk, git itself."""


def merge_actor(by: str) -> str:
    """Return the actor of a merge for the history: the person, or Liza for any supervisor."""
    return by if is_person(by) else LIZA


def finish_batch(crew: Crew, by: str, batch: Batch) -> None:
    """Record the tasks of a batch as merged and clean up: the branch has their candidates.

    A failed clean-up is reported and left to recovery.
    """
    with crew.change(merge_actor(by), "merge", batch.ids[0]) as tx:
        tx.state = merge_batches.record_merged(tx.state, batch, Invocation(now=crew.clock.now(), by=by))
    crash_points.point("merge", "merged")

    def record_tip() -> None:
        message = target_tips.record_merged_tip(crew, batch)
        if message:
            crew.append_alert_log([message])

    # The board is written first: recovery completes the clean-up of a MERGED task.
    steps: list[Callable[[], None]] = [record_tip]
    for task in batch.tasks:
        steps += [
            partial(_release_slot, crew, by, task),
            partial(merges.delete_candidate, crew.git, task.id, closed=True),
        ]
    for step in steps:
        try:
            step()
        except CAUGHT_ERRORS as error:
            crew.append_alert_log(
                [f"after_merge  {batch.title} is merged; {_error_text(error)}. Next: liza doctor --fix"]
            )


def _release_slot(crew: Crew, by: str, task: Task) -> None:
    if task.worktree:
        crew.worktrees.release(task.worktree, task.id, task.run or by)


def reconsidered(crew: Crew, what: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Release the drafts that are complete after ``what``. Return one line for each, and one for a failure.

    A failure does not undo the merge: it is reported here and in the alert log.
    """
    try:
        return draft_specs.release_drafts(crew), ()
    except CAUGHT_ERRORS as error:
        message = f"{what} is done; the drafts that wait for it could not be checked: {_error_text(error)}"
        with suppress(*CAUGHT_ERRORS):
            crew.append_alert_log([f"after_merge  {message}. Next: liza up"])
        return (), (message,)


def named(error: LizaError | OSError, hint: str) -> LizaError:
    """Return a failure as a LizaError. An OSError becomes WriteFailed or SystemRefused: it is not a bug of Liza."""
    if isinstance(error, LizaError):
        return error
    return to_write_failed(error) or SystemRefused(f"the merge could not be carried out: {error}", hint)


class SharedFailure(Refused):
    """A cause outside of all tasks prevents the merge for now; no task is to blame."""

    def __init__(self, task_id: str, failure: MergeFailure) -> None:
        super().__init__(failure.message, failure.hint or f"liza merge {task_id}")
        self.merge_failure = failure


def record_errors(crew: Crew, by: str, tasks: Sequence[Task], error: LizaError | OSError) -> bool:
    """Record a failed merge on each of its tasks. Return whether the error may be caused by them and was recorded.

    Which of several tasks caused it is unknown: each is then merged alone.
    """
    if not is_task_error(crew, error):
        return False
    is_recorded = False
    for task in tasks:
        if isinstance(error, SharedFailure):
            failure = error.merge_failure
        elif len(tasks) > 1:
            hint = error.hint if isinstance(error, LizaError) else ""
            failure = MergeFailure(MergeFailureKind.BATCH, _error_text(error), hint)
        else:
            failure = classify_error(crew, task, error)
        with suppress(Refused):
            record_failure(crew, by, task, failure)
            is_recorded = True
    return is_recorded


def return_to_coder(crew: Crew, by: str, task: Task, detail: str) -> None:
    """Return a task to its coder after a conflict or failed tests."""
    with crew.change(merge_actor(by), "merge failed", task.id) as tx:
        invocation = Invocation(now=crew.clock.now(), by=by, commit=task.review_commit, detail=detail)
        tx.state = merge_rules.fail_merge(tx.state, task.id, invocation)
    merges.delete_candidate(crew.git, task.id)


def is_task_error(crew: Crew, error: BaseException) -> bool:
    """Return whether a failure may be caused by this task, so that other merges may succeed.

    False if git cannot read the repository.
    """
    # A path that is not a regular file is Missing, but may be that of one task, as its log.
    is_general = isinstance(error, _GENERAL_ERRORS) and not isinstance(error, NotRegularFile)
    if not isinstance(error, CAUGHT_ERRORS) or is_general:
        return False
    try:
        return merge_refs.is_readable(crew.git, crew.board.read().config.integration_branch)
    except CAUGHT_ERRORS:
        return False


def record_failure(crew: Crew, by: str, task: Task, failure: MergeFailure) -> bool:
    """Record a failed merge, and log the alarm if its retry is delayed: it may clear before a supervisor sees it.

    Return whether the task went back to its coder, who must resolve it. Raises Refused.
    """
    with crew.change(merge_actor(by), "merge failed", task.id) as tx:
        before = tx.state.task(task.id) or task
        invocation = Invocation(now=crew.clock.now(), by=by, commit=task.review_commit)
        tx.state = merge_rules.retry_or_fail(tx.state, task.id, failure, invocation)
    after = tx.state.task(task.id)
    if after is None or after.status is Status.INTEGRATION_FAILED:
        return after is not None
    # The failure is recorded. If its alarm cannot be logged here, a supervisor logs it.
    with suppress(*CAUGHT_ERRORS):
        now = crew.clock.now()
        logged_alarms.log_early(crew, merge_alarms.retry_alarms(after, now), merge_alarms.retry_alarms(before, now))
    return False


def classify_error(crew: Crew, task: Task, error: BaseException) -> MergeFailure:
    """Return the kind of a failure, from the current state of the reviewed commit."""
    commit, text = task.review_commit, _error_text(error)
    hint = error.hint if isinstance(error, LizaError) else ""
    try:
        branch = targets.target_branch(crew.board.read(), task)
        commit_exists = commit is not None and merge_refs.has_commit(crew.git, commit)
        related = not commit_exists or merge_refs.has_merge_base(crew.git, str(commit), f"refs/heads/{branch}")
    except CAUGHT_ERRORS:
        return MergeFailure(MergeFailureKind.FAILED, text, hint)
    kind = merge_rules.classify_failure(commit_exists=commit_exists, related=related)
    return MergeFailure(kind, f"{_FAILURE_TEXTS[kind].format(commit=str(commit)[:12], branch=branch)}{text}", hint)


_FAILURE_TEXTS = {
    MergeFailureKind.GONE: "the reviewed commit {commit} is not in the repository any more: ",
    MergeFailureKind.UNRELATED: "the reviewed commit {commit} has no commit in common with {branch}: ",
    MergeFailureKind.FAILED: "",
}


def report_moved_refs(crew: Crew, by: str, task: Task, result: CandidateResult) -> None:
    """Report refs that moved during the tests of a candidate: in the task's history and the alert log."""
    if not result.moved_refs:
        return
    names = ", ".join(result.moved_refs)
    with crew.change(merge_actor(by), "tests moved refs", task.id) as tx:
        current = tx.state.task(task.id)
        if current is not None:
            invocation = Invocation(now=crew.clock.now(), by=by, detail=names)
            tx.state = tx.state.with_task(add_event(current, HistoryEvent.TESTS_MOVED_REFS, invocation))
    crew.append_alert_log([f"tests_moved_refs  {result.told(task.id)}. Next: liza task show {task.id}"])


def restore_branch(crew: Crew, branch: str, commit: str) -> str:
    """Put ``branch`` back to ``commit``. Return a sentence about the result."""
    if merges.restore_branch(crew.git, branch, commit):
        return f"{branch} was put back to {commit[:10]}"
    return f"{branch} could not be put back to {commit[:10]}"


def undo_untested_move(crew: Crew, batch: Batch) -> str:
    """Move the branch back from a candidate of the batch that must not be published now. Return a sentence about it,
    or an empty string if it is at none of them.
    """
    branch = batch.branch
    if not merges.contains(crew.git, branch, batch.members[0].merging.candidate):
        return ""
    member = next(last for last in reversed(batch.members) if merges.contains(crew.git, branch, last.merging.candidate))
    commit, task_id = member.merging.candidate, member.task.id
    event = f"{branch} was moved onto {commit[:10]}, the candidate of {task_id}, which no test has passed"
    if merges.move_branch_back(crew.git, branch, commit, batch.expected):
        message = f"{event}; it was put back to {batch.expected[:10]}"
    else:
        message = f"{event}, and it could not be put back"
    crew.append_alert_log([f"untested_integration  {message}. Next: liza task show {task_id}"])
    return message


def _error_text(error: BaseException) -> str:
    return error.message if isinstance(error, LizaError) else f"{error}"
