"""Build a batch: a chain of candidates, and what becomes of tasks that conflict."""

from __future__ import annotations

from collections.abc import Sequence

from liza.crew.crew import Crew
from liza.crew.merging import merge_outcomes
from liza.repo.merge import checkout_files, conflicts, merges
from liza.rules.errors import MergeConflict
from liza.rules.merging import merge_failures
from liza.rules.merging.merge_batches import Batch, Member
from liza.rules.model import MergeInProgress, Task


def build_batch(crew: Crew, by: str, tasks: Sequence[Task], branch: str, base: str) -> Batch | None:
    """Build a candidate for each task on top of the one before, the first on ``base``, the tip of ``branch``. Return
    None if none is left.

    A task that conflicts with ``base`` goes back to its coder. One that only conflicts with another task of the batch
    is left out and stays APPROVED. Any failure is recorded on its task, and the others go on; with one task it is
    raised. Raises LizaError, OSError.
    """
    chain = _Chain(crew, branch, base, checks_files=len(tasks) > 1)
    for task in tasks:
        try:
            _add_or_return(crew, by, chain, task, (branch, base))
        except Exception as error:
            if len(tasks) == 1 or not merge_outcomes.record_errors(crew, by, [task], error):
                raise
        if chain.is_closed:
            break
    if not chain.members:
        return None
    return Batch(tuple(chain.members), branch).prefix(len(chain.members))


class _Chain:
    """The candidates so far. ``is_closed``: no other task may be added. ``checks_files``: whether changed files of a
    person's checkout decide who is in the batch; a single candidate waits for them when it is tested."""

    def __init__(self, crew: Crew, branch: str, base: str, *, checks_files: bool) -> None:
        self.members: list[Member] = []
        self.is_closed = False
        self._git = crew.git
        self._tip = base
        checkout = merges.find_checkout(crew.git, branch) if checks_files else None
        self._checkout = None if checkout is None else crew.git.at(checkout)
        self._state = None if self._checkout is None else checkout_files.read_checkout(self._checkout, base)

    def add(self, task: Task) -> None:
        """Add the candidate of a task. One that a person's changed files block is left out, unless it is the first: it
        is alone then, so that it holds up no other. Raises MergeConflict, GitFailed."""
        assert task.review_commit is not None
        title = task.description.strip().splitlines()[0][:72] if task.description.strip() else task.id
        commit = merges.build_candidate(self._git, task.review_commit, self._tip, f"Merge {task.id}: {title}", task.id)
        if self._is_blocked(commit):
            if self.members:
                merges.delete_candidate(self._git, task.id)
                return
            self.is_closed = True
        self.members.append(Member(task, MergeInProgress(candidate=commit, expected=self._tip)))
        self._tip = commit

    def _is_blocked(self, commit: str) -> bool:
        if self._checkout is None or self._state is None:
            return False
        return bool(checkout_files.find_blocking_files(self._checkout, self._state, self._tip, commit))


def _add_or_return(crew: Crew, by: str, chain: _Chain, task: Task, onto: tuple[str, str]) -> None:
    """Add the candidate of a task, or handle its conflict. Raises LizaError, OSError."""
    try:
        chain.add(task)
    except MergeConflict as conflict:
        _resolve_conflict(crew, by, task, conflict, onto, is_first=not chain.members)


def _resolve_conflict(
    crew: Crew, by: str, task: Task, conflict: MergeConflict, onto: tuple[str, str], *, is_first: bool
) -> None:
    """Handle a conflict of a task in a chain onto a branch at a commit."""
    assert task.review_commit is not None
    branch, base = onto
    files = conflict.files
    if not is_first:
        files = merges.merge_trees(crew.git.with_environment(GIT_ATTR_SOURCE=base), base, task.review_commit)[1]
        if not files:
            return
    hunks = conflicts.read_conflict_hunks(crew.git, base, task.review_commit, files)
    merge_outcomes.return_to_coder(crew, by, task, merge_failures.describe_conflict(branch, files, hunks))
