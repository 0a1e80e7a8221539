"""What a merger leaves on the board: merged, failed, set aside. And what it leaves to be tidied up after that."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from liza.crew import draft_specs
from liza.crew.crew import PERSON, Crew
from liza.crew.drift import drift
from liza.crew.merging.candidate import Result
from liza.repo.merge import merge_refs, merges
from liza.rules.errors import BoardInconsistent, LizaError, LockTimeout, Missing, PlaceBroken, SystemRefused
from liza.rules.merging import merge_rules
from liza.rules.merging.merge_rules import MergeFailure, MergeFailureKind
from liza.rules.model import Merging, Status, Task
from liza.rules.reports.narration import LIZA
from liza.rules.transitions import Said, remark
from liza.system import crash_points
from liza.system.files import refusal

FAILURES = (LizaError, OSError)
_NOT_OF_A_TASK = (BoardInconsistent, LockTimeout, Missing, PlaceBroken)
"""What keeps every merge from its end, and is reported by other ways: the board, its lock, the disk, git itself."""


def actor(by: str) -> str:
    """Who a merge is attributed to in the history: the person, or Liza, whichever supervisor carried it out."""
    return by if by.startswith(PERSON) else LIZA


def merged(crew: Crew, by: str, task: Task, made: Merging) -> None:
    """Integration holds the candidate. What cannot be tidied up is reported, and left to recovery."""
    said = Said(now=crew.clock.now(), by=by, commit=made.candidate)
    with crew.change(actor(by), "merge", task.id) as tx:
        tx.state = merge_rules.merged(tx.state, task.id, said, bool(made.tested))
    crash_points.point("merge", "merged")

    def note() -> None:
        told = drift.note_merged(crew, task, made.expected, made.candidate)
        if told:
            crew.write_down([told])

    def clear() -> None:
        if task.worktree:
            crew.worktrees.clear(task.worktree, task.id, task.run or by)

    steps: tuple[Callable[[], None], ...] = (
        note,
        clear,
        lambda: merges.drop_candidate(crew.git, task.id, closed=True),
    )
    for step in steps:
        try:
            step()
        except FAILURES as error:
            crew.write_down([f"after_merge  {task.id} is merged; {_words(error)}. Next: liza doctor --fix"])


def reconsidered(crew: Crew, what: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Free the drafts that lack nothing any more after ``what``: a line about each, and one about a failure.

    A failure takes nothing back that was merged: it is reported, here and in the alerts.
    """
    try:
        return draft_specs.reconsider(crew), ()
    except FAILURES as error:
        told = f"{what} is done; the drafts that wait for it could not be looked at: {_words(error)}"
        with suppress(*FAILURES):
            crew.write_down([f"after_merge  {told}. Next: liza up"])
        return (), (told,)


def named(error: LizaError | OSError, hint: str) -> LizaError:
    """A failure that was marked, as a named error: what the system refused is no bug of Liza's."""
    if isinstance(error, LizaError):
        return error
    return refusal(error) or SystemRefused(f"the merge could not be carried out: {error}", hint)


def failed(crew: Crew, by: str, task: Task, detail: str) -> None:
    """A conflict, or red tests: the task goes back to its coder."""
    with crew.change(actor(by), "merge failed", task.id) as tx:
        said = Said(now=crew.clock.now(), by=by, commit=task.review_commit, detail=detail)
        tx.state = merge_rules.failed(tx.state, task.id, said)
    merges.drop_candidate(crew.git, task.id)


def is_of_a_task(crew: Crew, error: BaseException) -> bool:
    """Whether a failure may be due to the task that was merged, so that others may succeed. Not where git cannot read
    the repository."""
    if not isinstance(error, FAILURES) or isinstance(error, _NOT_OF_A_TASK):
        return False
    try:
        return merge_refs.readable(crew.git, crew.board.read().config.integration_branch)
    except FAILURES:
        return False


def troubled(crew: Crew, by: str, task: Task, trouble: MergeFailure) -> bool:
    """Mark a task whose merge failed; whether it went back to its coder, who alone can resolve it. Raises Refused."""
    with crew.change(actor(by), "merge failed", task.id) as tx:
        said = Said(now=crew.clock.now(), by=by, commit=task.review_commit)
        tx.state = merge_rules.troubled(tx.state, task.id, trouble, said)
    after = tx.state.task(task.id)
    return after is not None and after.status is Status.INTEGRATION_FAILED


def trouble_of(crew: Crew, task: Task, error: BaseException) -> MergeFailure:
    """The kind of a failure, from what the repository says of the reviewed commit now."""
    commit, words = task.review_commit, _words(error)
    hint = error.hint if isinstance(error, LizaError) else ""
    try:
        there = commit is not None and merge_refs.exists(crew.git, commit)
        branch = crew.board.read().config.integration_branch
        related = not there or merge_refs.related(crew.git, str(commit), f"refs/heads/{branch}")
    except FAILURES:
        return MergeFailure(MergeFailureKind.FAILED, words, hint)
    kind = merge_rules.kind_of(commit_exists=there, related=related)
    return MergeFailure(kind, f"{_CAUSES[kind].format(commit=str(commit)[:12])}{words}", hint)


_CAUSES = {
    MergeFailureKind.GONE: "the reviewed commit {commit} is not in the repository any more: ",
    MergeFailureKind.UNRELATED: "the reviewed commit {commit} has no commit in common with integration: ",
    MergeFailureKind.FAILED: "",
}


def report_moved(crew: Crew, by: str, task: Task, result: Result) -> None:
    """Report the refs that moved during the tests of a candidate: in the task's history and in the alerts."""
    if not result.moved:
        return
    names = ", ".join(result.moved)
    with crew.change(actor(by), "tests moved refs", task.id) as tx:
        found = tx.state.task(task.id)
        if found is not None:
            said = Said(now=crew.clock.now(), by=by, detail=names)
            tx.state = tx.state.with_task(remark(found, "tests moved refs", said))
    crew.write_down([f"tests_moved_refs  {result.told(task.id)}. Next: liza task show {task.id}"])


def given_back(crew: Crew, commit: str) -> str:
    """Have integration at ``commit`` again, from which it was taken away; what is to be said of that."""
    branch = crew.board.read().config.integration_branch
    if merges.give_back(crew.git, branch, commit):
        return f"{branch} was put back to {commit[:10]}"
    return f"{branch} could not be put back to {commit[:10]}"


def put_back(crew: Crew, task: Task, made: Merging) -> str:
    """Take integration back from a candidate that no test has passed; what is to be said of that, or nothing."""
    branch = crew.board.read().config.integration_branch
    if not merges.contains(crew.git, branch, made.candidate):
        return ""
    what = f"{branch} was moved onto {made.candidate[:10]}, the candidate of {task.id}, which no test has passed"
    if merges.put_back(crew.git, branch, made.candidate, made.expected):
        told = f"{what}; it was put back to {made.expected[:10]}"
    else:
        told = f"{what}, and it could not be put back"
    crew.write_down([f"untested_integration  {told}. Next: liza task show {task.id}"])
    return told


def _words(error: BaseException) -> str:
    return error.message if isinstance(error, LizaError) else f"{error}"
