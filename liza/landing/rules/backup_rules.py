"""Which branches of tasks are pushed to ``origin`` as a backup, and when a failed push is tried again. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from liza.model.alarm_kinds import Alarm, AlarmKind
from liza.model.history_events import UNFINISHED_ENDS, HistoryEvent
from liza.model.model import FINAL_STATUSES, State, Status, Task
from liza.model.value_classes import AwareDatetime, FrozenStruct, Value
from liza.text.redaction import redact

RETRY_AFTER: Final = 300.0
"""Seconds after a failed push in which nothing is pushed by itself."""
MAX_REASON: Final = 400
"""Characters of a recorded reason."""
_SAVED = (*UNFINISHED_ENDS, HistoryEvent.STOP, HistoryEvent.HANDOFF)


class BackupFailure(FrozenStruct, frozen=True, kw_only=True):
    """Why the branches of ``tasks`` could not be pushed, since when, and when that was tried last."""

    reason: str
    next: str
    tasks: tuple[str, ...]
    since: AwareDatetime
    last: AwareDatetime


class TaskTips(Value):
    """Commits by task: of its branch, as it was pushed last, and as a push began whose end is unknown."""

    local: Mapping[str, str]
    pushed: Mapping[str, str]
    begun: Mapping[str, str]

    def own_tip(self, task: str, remote_tip: str | None) -> str | None:
        """Return ``remote_tip`` if this crew pushed it, else the commit that it pushed last. A killed push may have
        reached the remote.
        """
        return remote_tip if remote_tip == self.begun.get(task) else self.pushed.get(task)


def is_waiting(failure: BackupFailure | None, now: datetime) -> bool:
    """Return whether a push failed so recently that none is started by itself."""
    # After a time in the future the clock was set back since.
    return failure is not None and 0 <= (now - failure.last).total_seconds() < RETRY_AFTER


def find_due(state: State, tips: TaskTips, failure: BackupFailure | None) -> tuple[str, ...]:
    """Return the tasks whose branches are to be pushed now.

    A task is due after each submission, and after a session that left commits. A task whose push failed is due even if
    it was merged meanwhile, and so is one whose push was killed.
    """
    failed = () if failure is None else failure.tasks
    return tuple(
        task.id for task in state.tasks if _is_unpushed(task, tips) and (task.id in failed or _is_wanted(task, tips))
    )


def _is_wanted(task: Task, tips: TaskTips) -> bool:
    is_killed = tips.begun.get(task.id) == tips.local[task.id]
    return is_killed or (task.status not in FINAL_STATUSES and _is_at_rest(task))


def find_unpushed(state: State, tips: TaskTips, failure: BackupFailure | None = None) -> tuple[str, ...]:
    """Return all tasks whose branches have commits that were not pushed; a closed one only if its push failed."""
    failed = () if failure is None else failure.tasks
    return tuple(
        task.id
        for task in state.tasks
        if task.id in failed or (task.status not in FINAL_STATUSES and _is_unpushed(task, tips))
    )


def _is_unpushed(task: Task, tips: TaskTips) -> bool:
    """Return whether the branch has commits of its own that were not pushed."""
    tip = tips.local.get(task.id)
    return tip is not None and tip not in (task.base_commit, tips.pushed.get(task.id))


def _is_at_rest(task: Task) -> bool:
    """Return whether no session writes commits now, as far as the board says."""
    return task.status is not Status.CLAIMED or bool(task.history and task.history[-1].event in _SAVED)


def backup_alarms(state: State, failure: BackupFailure | None) -> Iterator[Alarm]:
    """Yield the alarm for branches that could not be pushed, if the board wants them pushed."""
    tasks = () if failure is None else tuple(task for task in failure.tasks if state.task(task) is not None)
    if failure is None or state.config.push != "auto" or not tasks:
        return
    names = ", ".join(tasks[:5]) + (f" and {len(tasks) - 5} more" if len(tasks) > 5 else "")
    message = f"no backup of {names} at origin since {failure.since:%Y-%m-%d %H:%MZ}: {redact(failure.reason)}"
    yield Alarm(AlarmKind.PUSH_FAILED, "origin", message, redact(failure.next))
