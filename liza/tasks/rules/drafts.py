"""Incomplete drafts: which tasks they are, what they lack, and when they become UNCLAIMED."""

from __future__ import annotations

from collections.abc import Mapping

from liza.model.history_events import HistoryEvent
from liza.model.model import State
from liza.model.task_groups import is_incomplete
from liza.model.transitions import Invocation, apply_verb
from liza.model.value_classes import Value

E = HistoryEvent


class MissingParts(Value):
    """What a DRAFT lacks now, as sentences for people, and the command that supplies it. Empty if it lacks nothing."""

    missing: tuple[str, ...]
    next: str


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
