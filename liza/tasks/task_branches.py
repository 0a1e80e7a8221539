"""Which branches below ``task/`` are those of tasks, of this crew or an earlier one, and which are a person's own."""

from __future__ import annotations

from collections.abc import Iterable

from liza.board import archive_files
from liza.crew.crew import Crew
from liza.git import merge_refs, merges
from liza.model.paths import branch_of


def find_persons_branches(crew: Crew, branches: Iterable[str]) -> frozenset[str]:
    """Return those of ``branches``, names that begin with ``task/``, that are a person's own.

    A branch is a task's if that task is on the board or in the archive, if a slot has it checked out, or if work of the
    task was saved. Raises BoardUnreadable, GitFailed, OSError.
    """
    tasks = {branch_of(task.id) for task in crew.board.read().tasks}
    rest = frozenset(branches) - tasks
    if not rest:
        return rest
    archived = {branch_of(task_id) for task_id in archive_files.list_ids(crew.paths)}
    saved = {branch_of(name.partition("/")[0]) for name in merge_refs.refs_below(crew.git, "refs/liza/salvage/")}
    return rest - archived - saved - _checked_out_in_slots(crew)


def _checked_out_in_slots(crew: Crew) -> set[str]:
    return {
        branch
        for path, branch in merges.list_checkouts(crew.git).items()
        if branch is not None and path.parent == crew.paths.slots
    }
