"""Worktrees that are gone, and what stands in the place of their directory and is not Liza's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from liza.crew.crew import Crew
from liza.repo.slots import relocate, slot_records, slots_directory
from liza.rules.errors import LizaError, Refused
from liza.rules.merging.merge_alarms import Alarm
from liza.rules.model import State, Status, Task

FIX = "liza doctor --fix"


def alarms(crew: Crew, state: State) -> Iterator[Alarm]:
    """What keeps claimed tasks from being worked on. Nothing where it cannot be looked at, which `liza doctor` says."""
    with suppress(LizaError, OSError):
        wrong = _not_ours(crew)
        if wrong is not None:
            _unlink(crew)
            yield Alarm("worktrees_replaced", str(crew.paths.slots), wrong.message, f"{wrong.hint} && {FIX}")
            return
        gone = [task.id for task in state.tasks if _is_gone(crew, task)]
        if gone:
            lack = "is claimed, and its worktree is" if len(gone) == 1 else "are claimed, and their worktrees are"
            message = f"{', '.join(gone)} {lack} not in {crew.paths.slots}"
            yield Alarm("worktree_gone", gone[0], message, FIX)


def _is_gone(crew: Crew, task: Task) -> bool:
    """Whether the worktree of a claimed task is missing, and no supervisor of its agent will see to that."""
    if task.status is not Status.CLAIMED or task.reservation is not None or task.worktree is None:
        return False
    return not crew.paths.slot(task.worktree).is_dir() and not crew.supervised(str(task.assigned_to))


def refuse_replaced(crew: Crew) -> None:
    """Raises Refused where something else stands in the place of the worktrees; no link leads there any more then."""
    wrong = _not_ours(crew)
    if wrong is not None:
        _unlink(crew)
        raise wrong


def _not_ours(crew: Crew) -> Refused | None:
    return None if crew.moved is not None else slots_directory.not_ours(crew.paths, relocate.common_of(crew.paths.root))


def _unlink(crew: Crew) -> None:
    for link, slot in slot_records.links(crew.paths):
        slot_records.unlink(crew.paths, link.name, slot)
