"""Worktrees that are gone, and what stands in the place of their directory and is not Liza's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from liza.crew.crew import Crew
from liza.repo.slots import relocate, slot_records, slots_directory
from liza.rules.errors import LizaError, Refused
from liza.rules.merging.merge_alarms import Alarm
from liza.rules.model import State, Status, Task

FIX_COMMAND = "liza doctor --fix"


def worktree_alarms(crew: Crew, state: State) -> Iterator[Alarm]:
    """What keeps claimed tasks from being worked on. Nothing where it cannot be looked at, which `liza doctor` says."""
    with suppress(LizaError, OSError):
        wrong = _foreign_error(crew)
        if wrong is not None:
            _remove_links(crew)
            yield Alarm("worktrees_replaced", str(crew.paths.slots), wrong.message, f"{wrong.hint} && {FIX_COMMAND}")
            return
        gone = [task.id for task in state.tasks if _is_worktree_missing(crew, task)]
        if gone:
            lack = "is claimed, and its worktree is" if len(gone) == 1 else "are claimed, and their worktrees are"
            message = f"{', '.join(gone)} {lack} not in {crew.paths.slots}"
            yield Alarm("worktree_gone", gone[0], message, FIX_COMMAND)


def _is_worktree_missing(crew: Crew, task: Task) -> bool:
    """Whether the worktree of a claimed task is missing, and no supervisor of its agent will see to that."""
    if task.status is not Status.CLAIMED or task.reservation is not None or task.worktree is None:
        return False
    return not crew.paths.slot(task.worktree).is_dir() and not crew.is_supervised(str(task.assigned_to))


def refuse_replaced(crew: Crew) -> None:
    """Raises Refused where something else stands in the place of the worktrees; no link leads there any more then."""
    wrong = _foreign_error(crew)
    if wrong is not None:
        _remove_links(crew)
        raise wrong


def _foreign_error(crew: Crew) -> Refused | None:
    return (
        None
        if crew.moved_reason is not None
        else slots_directory.foreign_error(crew.paths, relocate.find_common_dir(crew.paths.root))
    )


def _remove_links(crew: Crew) -> None:
    for link, slot in slot_records.list_links(crew.paths):
        slot_records.unlink_task(crew.paths, link.name, slot)
