"""Tasks that no agent can claim: lost dependencies, coders that all failed, and incomplete drafts."""

from __future__ import annotations

from collections.abc import Mapping

from liza.model.derived import is_incomplete
from liza.model.history_events import HistoryEvent
from liza.model.model import FINAL_STATUSES, State, Status, Task
from liza.model.paths import role_of
from liza.model.statuses import task_word
from liza.model.transitions import Invocation, apply_verb
from liza.model.value_classes import Value
from liza.tasks.rules.picking import CLAIMABLE_STATUSES

S = Status


def find_unclaimable(state: State) -> dict[str, str]:
    """Return the open tasks whose dependencies can never be met: id → text with the dependency and its state."""
    archived = state.archived.outcomes
    lost = {task.id for task in state.tasks if task.status is S.ABANDONED}
    lost |= {name for name, outcome in archived.items() if outcome is not S.MERGED}
    reasons: dict[str, str] = {}
    ids = {task.id for task in state.tasks} | archived.keys()
    while True:
        before = len(lost)
        for task in state.tasks:
            if task.id in lost:
                continue
            if task.status is S.SUPERSEDED:
                is_lost = not task.superseded_by or any(other in lost for other in task.superseded_by)
                lost |= {task.id} if is_lost else set()
            elif task.status is not S.MERGED:
                cause = next((other for other in task.depends_on if other in lost or other not in ids), None)
                if cause is not None:
                    lost.add(task.id)
                    reasons[task.id] = f"{cause}, {_how_lost(state, cause)}"
        if len(lost) == before:
            return reasons


def failed_by_every_coder(state: State, task: Task) -> bool:
    """Whether the task is claimable and every coder on the board has failed it: only another coder can claim it."""
    if not task.failed_by or task.status not in CLAIMABLE_STATUSES:
        return False
    coders = {name for name in state.agents if role_of(name) == "coder"}
    return bool(coders) and coders <= set(task.failed_by)


def first_able_coder(task: Task) -> int:
    """Return the lowest number of a coder that has not failed the task."""
    return next(number for number in range(1, len(task.failed_by) + 2) if f"coder-{number}" not in task.failed_by)


def waits_for_coder_text(task: Task) -> str:
    """Return the message for a task that every coder of the crew has failed."""
    return f"{task.id} waits for another coder: {', '.join(task.failed_by)} failed it before"


def _how_lost(state: State, task_id: str) -> str:
    task = state.task(task_id)
    if task is None:
        outcome = state.archived.outcomes.get(task_id)
        return "which is not on the board" if outcome is None else f"which is archived and was not merged: {outcome}"
    return (
        f"which is {task_word(task.status)}" if task.status in FINAL_STATUSES else "which can never be claimed itself"
    )


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
