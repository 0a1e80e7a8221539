"""What a merger leaves on the board: merged, failed, set aside. And what it leaves to be tidied up after that."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from liza.crew import draft_specs
from liza.crew.crew import PERSON_PREFIX, Crew
from liza.crew.drift import drift
from liza.crew.merging.candidate import CandidateResult
from liza.repo.merge import merge_refs, merges
from liza.rules.errors import BoardInconsistent, LizaError, LockTimeout, Missing, SharedPathBlocked, SystemRefused
from liza.rules.merging import merge_rules
from liza.rules.merging.merge_rules import MergeFailure, MergeFailureKind
from liza.rules.model import MergeInProgress, Status, Task
from liza.rules.reports.narration import LIZA
from liza.rules.transitions import Invocation, add_event
from liza.system import crash_points
from liza.system.files import to_write_failed

CAUGHT_ERRORS = (LizaError, OSError)
_GENERAL_ERRORS = (BoardInconsistent, LockTimeout, Missing, SharedPathBlocked)
"""What keeps every merge from its end, and is reported by other ways: the board, its lock, the disk, git itself."""


def merge_actor(by: str) -> str:
    """Who a merge is attributed to in the history: the person, or Liza, whichever supervisor carried it out."""
    return by if by.startswith(PERSON_PREFIX) else LIZA


def finish_merge(crew: Crew, by: str, task: Task, made: MergeInProgress) -> None:
    """Integration holds the candidate. What cannot be tidied up is reported, and left to recovery."""
    said = Invocation(now=crew.clock.now(), by=by, commit=made.candidate)
    with crew.change(merge_actor(by), "merge", task.id) as tx:
        tx.state = merge_rules.record_merge(tx.state, task.id, said, bool(made.tested))
    crash_points.point("merge", "merged")

    def note() -> None:
        told = drift.record_merged_tip(crew, task, made.expected, made.candidate)
        if told:
            crew.append_alert_log([told])

    def clear() -> None:
        if task.worktree:
            crew.worktrees.release(task.worktree, task.id, task.run or by)

    steps: tuple[Callable[[], None], ...] = (
        note,
        clear,
        lambda: merges.delete_candidate(crew.git, task.id, closed=True),
    )
    for step in steps:
        try:
            step()
        except CAUGHT_ERRORS as error:
            crew.append_alert_log([f"after_merge  {task.id} is merged; {_error_text(error)}. Next: liza doctor --fix"])


def reconsidered(crew: Crew, what: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Free the drafts that lack nothing any more after ``what``: a line about each, and one about a failure.

    A failure takes nothing back that was merged: it is reported, here and in the alerts.
    """
    try:
        return draft_specs.release_drafts(crew), ()
    except CAUGHT_ERRORS as error:
        told = f"{what} is done; the drafts that wait for it could not be looked at: {_error_text(error)}"
        with suppress(*CAUGHT_ERRORS):
            crew.append_alert_log([f"after_merge  {told}. Next: liza up"])
        return (), (told,)


def named(error: LizaError | OSError, hint: str) -> LizaError:
    """A failure that was marked, as a named error: what the system refused is no bug of Liza's."""
    if isinstance(error, LizaError):
        return error
    return to_write_failed(error) or SystemRefused(f"the merge could not be carried out: {error}", hint)


def return_to_coder(crew: Crew, by: str, task: Task, detail: str) -> None:
    """A conflict, or red tests: the task goes back to its coder."""
    with crew.change(merge_actor(by), "merge failed", task.id) as tx:
        said = Invocation(now=crew.clock.now(), by=by, commit=task.review_commit, detail=detail)
        tx.state = merge_rules.fail_merge(tx.state, task.id, said)
    merges.delete_candidate(crew.git, task.id)


def is_task_error(crew: Crew, error: BaseException) -> bool:
    """Whether a failure may be due to the task that was merged, so that others may succeed. Not where git cannot read
    the repository."""
    if not isinstance(error, CAUGHT_ERRORS) or isinstance(error, _GENERAL_ERRORS):
        return False
    try:
        return merge_refs.is_readable(crew.git, crew.board.read().config.integration_branch)
    except CAUGHT_ERRORS:
        return False


def record_failure(crew: Crew, by: str, task: Task, trouble: MergeFailure) -> bool:
    """Mark a task whose merge failed; whether it went back to its coder, who alone can resolve it. Raises Refused."""
    with crew.change(merge_actor(by), "merge failed", task.id) as tx:
        said = Invocation(now=crew.clock.now(), by=by, commit=task.review_commit)
        tx.state = merge_rules.retry_or_fail(tx.state, task.id, trouble, said)
    after = tx.state.task(task.id)
    return after is not None and after.status is Status.INTEGRATION_FAILED


def classify_error(crew: Crew, task: Task, error: BaseException) -> MergeFailure:
    """The kind of a failure, from what the repository says of the reviewed commit now."""
    commit, words = task.review_commit, _error_text(error)
    hint = error.hint if isinstance(error, LizaError) else ""
    try:
        there = commit is not None and merge_refs.has_commit(crew.git, commit)
        branch = crew.board.read().config.integration_branch
        related = not there or merge_refs.has_merge_base(crew.git, str(commit), f"refs/heads/{branch}")
    except CAUGHT_ERRORS:
        return MergeFailure(MergeFailureKind.FAILED, words, hint)
    kind = merge_rules.classify_failure(commit_exists=there, related=related)
    return MergeFailure(kind, f"{_FAILURE_TEXTS[kind].format(commit=str(commit)[:12])}{words}", hint)


_FAILURE_TEXTS = {
    MergeFailureKind.GONE: "the reviewed commit {commit} is not in the repository any more: ",
    MergeFailureKind.UNRELATED: "the reviewed commit {commit} has no commit in common with integration: ",
    MergeFailureKind.FAILED: "",
}


def report_moved_refs(crew: Crew, by: str, task: Task, result: CandidateResult) -> None:
    """Report the refs that moved during the tests of a candidate: in the task's history and in the alerts."""
    if not result.moved_refs:
        return
    names = ", ".join(result.moved_refs)
    with crew.change(merge_actor(by), "tests moved refs", task.id) as tx:
        found = tx.state.task(task.id)
        if found is not None:
            said = Invocation(now=crew.clock.now(), by=by, detail=names)
            tx.state = tx.state.with_task(add_event(found, "tests moved refs", said))
    crew.append_alert_log([f"tests_moved_refs  {result.told(task.id)}. Next: liza task show {task.id}"])


def restore_integration(crew: Crew, commit: str) -> str:
    """Have integration at ``commit`` again, from which it was taken away; what is to be said of that."""
    branch = crew.board.read().config.integration_branch
    if merges.restore_branch(crew.git, branch, commit):
        return f"{branch} was put back to {commit[:10]}"
    return f"{branch} could not be put back to {commit[:10]}"


def undo_untested_move(crew: Crew, task: Task, made: MergeInProgress) -> str:
    """Take integration back from a candidate that no test has passed; what is to be said of that, or nothing."""
    branch = crew.board.read().config.integration_branch
    if not merges.contains(crew.git, branch, made.candidate):
        return ""
    what = f"{branch} was moved onto {made.candidate[:10]}, the candidate of {task.id}, which no test has passed"
    if merges.move_branch_back(crew.git, branch, made.candidate, made.expected):
        told = f"{what}; it was put back to {made.expected[:10]}"
    else:
        told = f"{what}, and it could not be put back"
    crew.append_alert_log([f"untested_integration  {told}. Next: liza task show {task.id}"])
    return told


def _error_text(error: BaseException) -> str:
    return error.message if isinstance(error, LizaError) else f"{error}"
