"""Record the outcome of a merge on the board and at the branches (merged, failed, to be retried); clean up."""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from liza.crew import logged_alarms
from liza.crew.crew import Crew
from liza.git import branch_moves, candidates, git_refs, integration_tip
from liza.git.runner import Git
from liza.git.worktrees import Worktrees
from liza.merging import drift
from liza.merging.board_term import MergerReplaced
from liza.merging.candidate_tests import CandidateResult
from liza.merging.rules import merge_alarms, merge_queue, merge_rules
from liza.merging.rules.merge_queue import Batch
from liza.merging.rules.merge_rules import MergeFailure, MergeFailureKind
from liza.model import targets
from liza.model.errors import (
    BoardUnavailable,
    HostFenced,
    LizaError,
    LockTimeout,
    Missing,
    Refused,
    RemoteUnavailable,
    SharedPathBlocked,
    SystemRefused,
    TaskNotWritable,
)
from liza.model.gates import GateFinding
from liza.model.history_events import HistoryEvent
from liza.model.model import State, Status, Task
from liza.model.narration import LIZA
from liza.model.paths import Paths, is_person
from liza.model.transitions import Invocation, add_event
from liza.programs.session import log_file
from liza.system import crash_points
from liza.system.files import to_write_failed
from liza.tasks import draft_specs, task_branches

CAUGHT_ERRORS = (LizaError, OSError)
_OTHERS_ERRORS = (LockTimeout, SharedPathBlocked, MergerReplaced, HostFenced, BoardUnavailable)
"""Errors that another process or a path that every merge needs causes. They are reported elsewhere."""
_BUG_LOG = "merge-bug.log"


def merge_actor(by: str) -> str:
    """Return the actor of a merge for the history: the person, or Liza for any supervisor."""
    return by if is_person(by) else LIZA


def finish_batch(crew: Crew, by: str, batch: Batch) -> None:
    """Record the tasks of a batch as merged and clean up: the branch has their candidates.

    A failed clean-up is reported and left to recovery.
    """
    with crew.change(merge_actor(by), "merge", batch.ids[0]) as tx:
        tx.state = merge_queue.record_merged(tx.state, batch, Invocation(now=crew.clock.now(), by=by))
    crash_points.point("merge", "merged")

    def record_tip() -> None:
        message = record_merged_tip(crew, batch)
        if message:
            crew.append_alert_log([message])

    # The board is written first: recovery completes the clean-up of a MERGED task.
    steps: list[Callable[[], None]] = [record_tip]
    for task in batch.tasks:
        steps += [
            partial(_release_slot, crew.worktrees, by, task),
            partial(candidates.delete_candidate, crew.git, task.id, closed=True),
        ]
    for step in steps:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - the batch is merged, and a bug here must not stop the next one
            report_after_merge(crew, batch.title, error)


def report_after_merge(crew: Crew, title: str, error: Exception) -> None:
    """Log that the clean-up after a merge failed."""
    log_bug(crew.paths, error)
    step = _error_hint(error) if not isinstance(error, CAUGHT_ERRORS) else "liza doctor --fix"
    crew.append_alert_log([f"after_merge  {title} is merged; {_error_text(error)}. Next: {step}"])


def _release_slot(worktrees: Worktrees, by: str, task: Task) -> None:
    if task.worktree:
        worktrees.release(task.worktree, task.id, task.run or by)


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


def named(error: Exception, hint: str) -> Exception:
    """Return a failure as a LizaError. An OSError becomes WriteFailed or SystemRefused: it is not a bug of Liza. A bug
    stays what it is."""
    if not isinstance(error, OSError):
        return error
    return to_write_failed(error) or SystemRefused(f"the merge could not be carried out: {error}", hint)


class SharedFailure(Refused):
    """A cause outside of all tasks prevents the merge for now; no task is to blame."""

    def __init__(self, task_id: str, failure: MergeFailure) -> None:
        super().__init__(failure.message, failure.hint or f"liza merge {task_id}")
        self.merge_failure = failure


def untested_failure(subject: str, why: GateFinding) -> SharedFailure:
    """Build the error for tests that say nothing about the commit of a task or the branch of an epic."""
    hint = why.hint or f"liza merge {subject} --untested"
    return SharedFailure(subject, MergeFailure(MergeFailureKind.UNTESTED, f"untested: {why.text}", hint))


def record_errors(crew: Crew, by: str, tasks: Sequence[Task], error: Exception) -> bool:
    """Record a failed merge on each of its tasks. Return whether the error may be caused by them and was recorded.

    Which of several tasks caused it is unknown: each is then merged alone. Raises TaskNotWritable if the board cannot
    be written for one of them.
    """
    if not is_task_error(crew, error):
        return False
    log_bug(crew.paths, error)
    is_recorded, unwritable = False, None
    for task in tasks:
        if isinstance(error, SharedFailure):
            failure = error.merge_failure
        elif isinstance(error, RemoteUnavailable):
            failure = to_failure(error)  # what this clone lacks may be at the remote
        elif len(tasks) > 1:
            failure = MergeFailure(MergeFailureKind.BATCH, _error_text(error), _error_hint(error))
        else:
            failure = classify_error(crew, task, error)
        try:
            _record_or_shorten(crew, by, task, failure)
            is_recorded = True
        except Refused:
            continue
        except TaskNotWritable as refused:
            unwritable = refused
    if unwritable is not None:
        raise unwritable
    return is_recorded


def _record_or_shorten(crew: Crew, by: str, task: Task, failure: MergeFailure) -> None:
    """Record a failure on its task; without its text if the board cannot be written with it. Raises Refused,
    LockTimeout, Missing, TaskNotWritable."""
    try:
        record_failure(crew, by, task, failure)
    except (Refused, LockTimeout, Missing):
        raise
    except Exception as error:  # noqa: BLE001 - whatever the text breaks, its task must not stop the others
        crew.append_alert_log([f"merge_set_aside  {task.id}: {failure.message[:400]}. Next: liza merge {task.id}"])
        plain = f"its failure cannot be written to the board ({type(error).__name__}); .liza/alerts.log has it"
        try:
            record_failure(crew, by, task, MergeFailure(failure.kind, plain))
        except (Refused, LockTimeout, Missing):
            raise
        except Exception as again:
            log_bug(crew.paths, again)
            raise TaskNotWritable(task.id, _error_text(again)) from again


def log_bug(paths: Paths, error: Exception) -> None:
    """Write the traceback of a bug to a log that `liza bug-report` collects. Other errors are not logged."""
    if isinstance(error, CAUGHT_ERRORS):
        return

    with suppress(*CAUGHT_ERRORS), log_file.open_empty(paths.logs / _BUG_LOG) as log:
        log.write("".join(traceback.format_exception(error)).encode(errors="backslashreplace"))


def return_to_coder(crew: Crew, by: str, task: Task, detail: str) -> None:
    """Return a task to its coder after a conflict or failed tests."""
    with crew.change(merge_actor(by), "merge failed", task.id) as tx:
        invocation = Invocation(now=crew.clock.now(), by=by, commit=task.review_commit, detail=detail)
        tx.state = merge_rules.fail_merge(tx.state, task.id, invocation)
    candidates.delete_candidate(crew.git, task.id)


def is_task_error(crew: Crew, error: BaseException) -> bool:
    """Return whether a failure may be caused by this task, so that other merges may succeed.

    The class of an error does not tell: a disk that is full for one file, or a board that cannot be written with one
    text, are errors of a task. False if what every merge needs is at fault now: the board or the repository cannot be
    read, or integration cannot be moved. That the board can be written is seen when the failure is recorded.
    """
    if not isinstance(error, Exception) or isinstance(error, _OTHERS_ERRORS):
        return False
    try:
        branch = crew.board.read().config.integration_branch
        branch_moves.require_movable(crew.git, branch)
        return git_refs.is_readable(crew.git, branch)
    except CAUGHT_ERRORS:
        return False


def record_failure(crew: Crew, by: str, task: Task, failure: MergeFailure) -> bool:
    """Record a failed merge, and log the alarm if its retry is delayed: it may clear before a supervisor sees it.

    Return whether the task went back to its coder, who must resolve it, or is BLOCKED. Raises Refused.
    """
    with crew.change(merge_actor(by), "merge failed", task.id) as tx:
        before = tx.state.task(task.id) or task
        invocation = Invocation(now=crew.clock.now(), by=by, commit=task.review_commit)
        tx.state = merge_rules.retry_or_fail(tx.state, task.id, failure, invocation)
    after = tx.state.task(task.id)
    if after is None or after.status is not Status.APPROVED:
        return after is not None
    # The failure is recorded. If its alarm cannot be logged here, a supervisor logs it.
    with suppress(*CAUGHT_ERRORS):
        now = crew.clock.now()
        logged_alarms.log_early(crew, merge_alarms.retry_alarms(after, now), merge_alarms.retry_alarms(before, now))
    return False


def to_failure(error: Exception) -> MergeFailure:
    """Return an error as the failure that the board records."""
    if isinstance(error, SharedFailure):
        return error.merge_failure
    return MergeFailure(MergeFailureKind.FAILED, _error_text(error), _error_hint(error))


def classify_error(crew: Crew, task: Task, error: Exception) -> MergeFailure:
    """Return the kind of a failure, from the current state of the reviewed commit."""
    commit, text, hint = task.review_commit, _error_text(error), _error_hint(error)
    try:
        branch = targets.target_branch(crew.board.read(), task)
        commit_exists = commit is not None and git_refs.has_commit(crew.git, commit)
        related = not commit_exists or git_refs.has_merge_base(crew.git, str(commit), f"refs/heads/{branch}")
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


def restore_branch(git: Git, branch: str, commit: str) -> str:
    """Put ``branch`` back to ``commit``. Return a sentence about the result."""
    if branch_moves.restore_branch(git, branch, commit):
        return f"{branch} was put back to {commit[:10]}"
    return f"{branch} could not be put back to {commit[:10]}"


def undo_untested_move(crew: Crew, batch: Batch) -> str:
    """Move the branch back from a candidate of the batch that must not be published now. Return a sentence about it,
    or an empty string if it is at none of them.
    """
    branch = batch.branch
    if not branch_moves.contains(crew.git, branch, batch.members[0].merging.candidate):
        return ""
    member = next(
        last for last in reversed(batch.members) if branch_moves.contains(crew.git, branch, last.merging.candidate)
    )
    commit, task_id = member.merging.candidate, member.task.id
    event = f"{branch} was moved onto {commit[:10]}, the candidate of {task_id}, which no test has passed"
    if branch_moves.move_branch_back(crew.git, branch, commit, batch.expected):
        message = f"{event}; it was put back to {batch.expected[:10]}"
    else:
        message = f"{event}, and it could not be put back"
    crew.append_alert_log([f"untested_integration  {message}. Next: liza task show {task_id}"])
    return message


def _error_text(error: Exception) -> str:
    if isinstance(error, CAUGHT_ERRORS):
        return error.message if isinstance(error, LizaError) else f"{error}"
    return f"this is a bug in liza: {type(error).__name__}: {error}"


def _error_hint(error: Exception) -> str:
    if isinstance(error, CAUGHT_ERRORS):
        return error.hint if isinstance(error, LizaError) else ""
    return "liza bug-report"


def require_tip(crew: Crew, branch: str) -> str:
    """Return the commit of a branch that Liza merges into.

    Raises Missing if integration is gone; Refused if another branch is, or if the branch of an epic was
    moved outside of Liza: that stops only its own tasks.
    """
    state = crew.board.read()
    if branch == state.config.integration_branch:
        return integration_tip.require_integration(crew.git, state)
    epic = targets.epic_of(branch)
    if epic is not None:
        return _require_epic_tip(crew, state, epic)
    tip = branch_moves.branch_tip(crew.git, branch)
    if tip is None:
        last = _read_last_tip(crew.git, branch)
        raise Refused(f"the branch {branch} is gone", f"git branch {shlex.quote(branch)} {(last or 'HEAD')[:12]}")
    return tip


def _require_epic_tip(crew: Crew, state: State, epic: str) -> str:
    task_branches.ensure_branch(crew, epic)
    branch = targets.epic_branch(epic)
    ref, last_ref = f"refs/heads/{branch}", branch_moves.last_tip_ref(branch)
    tip, last = git_refs.find_commits(crew.git, ref, last_ref)
    assert tip is not None
    if tip == last:
        return tip
    if any(task.merge_commit == tip for task in targets.tasks_of(state, epic)):
        # A merger was killed after it had recorded this merge on the board.
        record_last_tip(crew.git, branch, tip)
        return tip
    raise task_branches.moved_error(epic, last, tip)


def is_last_tip(crew: Crew, branch: str, commit: str) -> bool:
    """Return whether Liza left the branch at ``commit``; True if that is unknown. Raises GitFailed."""
    if branch == crew.board.read().config.integration_branch:
        return integration_tip.is_last_tip(crew.git, commit)
    return _read_last_tip(crew.git, branch) in (None, commit)


def record_last_tip(git: Git, branch: str, tip: str) -> None:
    """Record that Liza put a branch other than integration at ``tip``. Raises GitFailed."""
    git.out("update-ref", branch_moves.last_tip_ref(branch), tip)


def record_merged_tip(crew: Crew, batch: Batch) -> str | None:
    """Record that Liza has published the batch. Return a line about earlier moves of the branch, or None.

    Raises GitFailed.
    """
    if batch.branch == crew.board.read().config.integration_branch:
        return drift.record_merged_tip(crew, batch.tasks[-1], batch.expected, batch.tip)
    last = _read_last_tip(crew.git, batch.branch)
    record_last_tip(crew.git, batch.branch, batch.tip)
    if last is None or crew.git.ok("merge-base", "--is-ancestor", last, batch.tip):
        return None
    message = f"{batch.branch} lacks commits that Liza had merged into it: it was moved back from {last[:10]}"
    return f"target_moved  {message}. Next: git log {batch.tip[:12]}..{last[:12]}"


def _read_last_tip(git: Git, branch: str) -> str | None:
    return git.find_commit(branch_moves.last_tip_ref(branch))
