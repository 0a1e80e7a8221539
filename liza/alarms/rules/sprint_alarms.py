"""Alarms at the checkpoint and at the deadline of a sprint. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from liza.model.alarm_kinds import Alarm, AlarmKind
from liza.model.model import FINAL_STATUSES, State, Status
from liza.model.statuses import SprintStatus
from liza.text.counts import count_noun

MAX_NAMES = 8  # names of tasks of one kind in a message


def sprint_alarms(state: State, now: datetime, cost: str) -> Iterator[Alarm]:
    """Yield what a person is to know about the times of the sprint. ``cost`` is the usage of the sprint as text."""
    deadline = state.sprint.timeline.deadline
    if is_checkpoint_due(state, now):
        due = state.sprint.timeline.checkpoint_at
        message = f"checkpoint of {state.sprint.id}, due {due:%Y-%m-%d %H:%MZ}: {_summary(state)}; {cost}"
        yield Alarm(AlarmKind.CHECKPOINT_DUE, f"{state.sprint.id} {due:%Y-%m-%dT%H:%MZ}", message, "liza edit")
    unfinished = [task.id for task in state.tasks if task.status not in FINAL_STATUSES]
    if _is_running(state) and deadline is not None and deadline <= now and unfinished:
        number = count_noun(len(unfinished), "task")
        message = f"the deadline of {state.sprint.id} was {deadline:%Y-%m-%d %H:%MZ}, and {number} of it not closed"
        yield Alarm(AlarmKind.DEADLINE_PASSED, state.sprint.id, f"{message}: {_names(unfinished)}", "liza edit")


def is_checkpoint_due(state: State, now: datetime) -> bool:
    """Return whether the checkpoint of a sprint in progress has passed. It is due until a person changes its time."""
    due = state.sprint.timeline.checkpoint_at
    return _is_running(state) and due is not None and due <= now


def _is_running(state: State) -> bool:
    return state.sprint.status in (SprintStatus.IN_PROGRESS, SprintStatus.CHECKPOINT)


def _summary(state: State) -> str:
    """Return what is merged, open and blocked, with the first names of each."""
    merged = [task.id for task in state.tasks if task.status is Status.MERGED]
    blocked = [task.id for task in state.tasks if task.status is Status.BLOCKED]
    unfinished = [task.id for task in state.tasks if task.status not in (*FINAL_STATUSES, Status.BLOCKED)]
    archived = state.archived.counts.get(Status.MERGED, 0)
    return ", ".join(
        f"{len(names) + more} {label}{f' ({_names(names)})' if names else ''}"
        for label, names, more in (("merged", merged, archived), ("open", unfinished, 0), ("blocked", blocked, 0))
    )


def _names(names: list[str]) -> str:
    return ", ".join(names[:MAX_NAMES]) + (f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else "")
