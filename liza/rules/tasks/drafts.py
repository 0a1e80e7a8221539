"""Drafts that only wait for something to be there: which they are, what they lack now, and when they are free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from liza.rules.model import State, Status, Task
from liza.rules.transitions import Invocation, apply_verb

_SHAPED = frozenset({"add", "edit"})


@dataclass(frozen=True)
class MissingParts:
    """What a DRAFT lacks now, and the one command that supplies it; ``missing`` is empty where it lacks nothing."""

    missing: tuple[str, ...]
    next: str


def is_incomplete(task: Task) -> bool:
    """Whether a task is a DRAFT since something was missing when it was last shaped.

    A draft that somebody asked for stays one until somebody edits it: nothing is noted there as missing.
    """
    if task.status is not Status.DRAFT:
        return False
    shaped = next((one for one in reversed(task.history) if one.event in _SHAPED), None)
    return shaped is not None and shaped.detail is not None


def release_complete_drafts(state: State, seen: State, lacks: Mapping[str, MissingParts], said: Invocation) -> State:
    """Make every incomplete DRAFT UNCLAIMED that lacks nothing any more. One that ``lacks`` does not name stays, and
    one that is not as it was in ``seen``, the board that ``lacks`` was found for."""
    for task in state.tasks:
        lack = lacks.get(task.id)
        if lack is not None and not lack.missing and is_incomplete(task) and seen.task(task.id) == task:
            state = state.with_task(apply_verb(task, "ready", said))
    return state


def group_incomplete(state: State, lacks: Mapping[str, MissingParts]) -> dict[MissingParts, list[str]]:
    """The incomplete drafts by what they lack, in the order of the board."""
    groups: dict[MissingParts, list[str]] = {}
    for task in state.tasks:
        if task.id in lacks and is_incomplete(task):
            groups.setdefault(lacks[task.id], []).append(task.id)
    return groups
