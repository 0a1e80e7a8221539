"""Incomplete drafts: which tasks they are, what they lack, and when they become UNCLAIMED."""

from __future__ import annotations

from collections.abc import Mapping

from liza.model.history_events import HistoryEvent
from liza.model.model import State, Status, Task
from liza.model.transitions import Invocation, apply_verb
from liza.model.value_classes import Value

E = HistoryEvent
_SHAPED = (E.ADD, E.EDIT)


class MissingParts(Value):
    """What a DRAFT lacks now, as sentences for people, and the command that supplies it. Empty if it lacks nothing."""

    missing: tuple[str, ...]
    next: str


def is_incomplete(task: Task) -> bool:
    """Return whether a task is a DRAFT because something was missing when it was last added or edited.

    A draft that was requested has no missing parts recorded. It stays a draft until it is edited.
    """
    if task.status is not Status.DRAFT:
        return False
    shaped = next((event for event in reversed(task.history) if event.event in _SHAPED), None)
    return shaped is not None and shaped.detail is not None


def release_complete_drafts(
    state: State, seen: State, lacks: Mapping[str, MissingParts], invocation: Invocation
) -> State:
    """Make every incomplete DRAFT UNCLAIMED that lacks nothing any more.

    ``lacks`` was computed for the board ``seen``. A draft that ``lacks`` does not name, or that has changed since
    ``seen``, stays a draft.
    """
    for task in state.tasks:
        parts = lacks.get(task.id)
        if parts is not None and not parts.missing and is_incomplete(task) and seen.task(task.id) == task:
            state = state.with_task(apply_verb(task, E.READY, invocation))
    return state


def group_incomplete(state: State, lacks: Mapping[str, MissingParts]) -> dict[MissingParts, list[str]]:
    """Return the ids of incomplete drafts, grouped by what they lack, in the order of the board."""
    groups: dict[MissingParts, list[str]] = {}
    for task in state.tasks:
        if task.id in lacks and is_incomplete(task):
            groups.setdefault(lacks[task.id], []).append(task.id)
    return groups
