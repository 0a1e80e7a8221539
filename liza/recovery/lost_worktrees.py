"""Missing worktrees, and foreign files in the place of the slots directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from liza.crew.crew import Crew
from liza.git import slots_directory
from liza.model.alarm_kinds import Alarm, AlarmKind
from liza.model.errors import LizaError, Refused
from liza.model.model import State, Status, Task

FIX_COMMAND = "liza doctor --fix"


def worktree_alarms(crew: Crew, state: State) -> Iterator[Alarm]:
    """Yield alarms about claimed tasks without a worktree. Changes nothing.

    A failed check yields nothing: `liza doctor` reports it.
    """
    with suppress(LizaError, OSError):
        error = _foreign_error(crew)
        if error is not None:
            yield Alarm(
                AlarmKind.WORKTREES_REPLACED, str(crew.paths.slots), error.message, f"{error.hint} && {FIX_COMMAND}"
            )
            return
        missing = [task.id for task in state.tasks if _is_worktree_missing(crew, task)]
        if missing:
            phrase = "is claimed, and its worktree is" if len(missing) == 1 else "are claimed, and their worktrees are"
            message = f"{', '.join(missing)} {phrase} not in {crew.paths.slots}"
            yield Alarm(AlarmKind.WORKTREE_GONE, missing[0], message, FIX_COMMAND)


def _is_worktree_missing(crew: Crew, task: Task) -> bool:
    """Return whether the worktree of a claimed task is missing and its agent has no supervisor that repairs it."""
    if task.status is not Status.CLAIMED or task.reservation is not None or task.worktree is None:
        return False
    return not crew.paths.slot(task.worktree).is_dir() and not crew.is_supervised(str(task.assigned_to))


def refuse_replaced(crew: Crew) -> None:
    """Raise Refused if the slots directory was replaced."""
    error = _foreign_error(crew)
    if error is not None:
        raise error


def _foreign_error(crew: Crew) -> Refused | None:
    return (
        None
        if crew.moved_reason is not None
        else slots_directory.foreign_error(crew.paths, slots_directory.find_common_dir(crew.paths.root))
    )
