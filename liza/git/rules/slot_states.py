"""The state of a slot, derived from facts, and the ports that belong to a slot. Pure."""

from __future__ import annotations

import re
from enum import StrEnum

from liza.model.model import FINAL_STATUSES, State, Status, Task
from liza.model.statuses import task_word
from liza.model.value_classes import Value

FIRST_PORT, PORTS_PER_SLOT = 21000, 20
"""Ports of slots: 20 for each, from 21000 to below 32768, where Linux begins to give out ports by itself."""
_SLOT_NAME = re.compile(
    r"(?:[a-z0-9-]+-(?=s[0-9]))?(?P<kind>s|code-reviewer|planner|merge|proof|coder)-?(?P<number>[0-9]*)"
)
_FIRST_NUMBERS = {"s": 0, "coder": 200, "code-reviewer": 300, "planner": 400, "merge": 450, "proof": 499}
_NUMBERS = 500
COPY_VARIABLES = {
    "UV_LINK_MODE": "copy",
    "npm_config_package_import_method": "copy",  # pnpm up to version 10
    "pnpm_config_package_import_method": "copy",  # later versions of pnpm
    "YARN_NM_MODE": "classic",
    "CONDA_ALWAYS_COPY": "true",
    "MAMBA_ALWAYS_COPY": "true",
}
"""Variables by which installers copy files from their caches. A hard link is one file: an edit of it in a slot would
change the cache, the other slots and the person's environment.
"""
_WAITING_STATUSES = frozenset({Status.UNCLAIMED, Status.REJECTED, Status.INTEGRATION_FAILED, Status.BLOCKED})


class SlotState(StrEnum):
    """State of a slot. ``slot_status`` has the facts that make each."""

    BUSY = "busy"
    FREE = "free"
    DIRTY = "dirty"
    DAMAGED = "damaged"


class SlotFacts(Value):
    """Facts about a slot. ``damage``: what is wrong with its directory or records, or None. ``user``: the process or
    session that uses it now, or None. ``unsaved``: number of changed files and of commits on no branch.
    """

    name: str
    damage: str | None = None
    user: str | None = None
    unsaved: int = 0


class SlotStatus(Value):
    """State of a slot, the reason, and the one next command; empty if there is nothing to do."""

    state: SlotState
    why: str
    next: str = ""


def find_user_task(board: State, slot: str) -> Task | None:
    """Return the open task whose worktree is this slot, or that is being claimed into it."""
    return next(
        (
            task
            for task in board.tasks
            if task.status not in FINAL_STATUSES
            and (task.worktree == slot or (task.reservation is not None and task.reservation.slot == slot))
        ),
        None,
    )


def needs_no_slot(task: Task) -> bool:
    """Return whether no agent holds the open task: its next claim creates a removed slot again, with its saved work."""
    return task.status in _WAITING_STATUSES and task.reservation is None


def release_command(task: Task) -> str:
    """Return the command after which a slot of the task can be removed; what shows the task if none does."""
    return f"liza task release {task.id}" if task.status is Status.CLAIMED else f"liza task show {task.id}"


def slot_status(facts: SlotFacts, task: Task | None) -> SlotStatus:
    """Return the state of a slot. ``task``: the open task that has it, or None."""
    if facts.damage is not None:
        return SlotStatus(SlotState.DAMAGED, facts.damage, f"liza slots repair {facts.name}")
    if task is not None:
        return SlotStatus(SlotState.BUSY, f"{task.id} ({task_word(task.status)})")
    if facts.user is not None:
        return SlotStatus(SlotState.BUSY, facts.user)
    if facts.unsaved:
        count = f"{facts.unsaved} change{'' if facts.unsaved == 1 else 's'} that no branch has"
        return SlotStatus(SlotState.DIRTY, count, f"liza slots nuke {facts.name}")
    return SlotStatus(SlotState.FREE, "")


def slot_variables(slot: str) -> dict[str, str]:
    """Return the variables by which set-up, tests and sessions have ports, databases and dependencies of their own.

    The ports of two slots are different as long as their numbers are below the limits of their kinds (200 task slots,
    100 reviewers); beyond, they repeat.
    """
    own = {"LIZA_SLOT": slot, "LIZA_PORT_BASE": str(slot_ports(slot).start)}
    return {**own, **COPY_VARIABLES}


def is_merge_slot(slot: str) -> bool:
    """Return whether gates run in a slot of this name."""
    return slot.partition("-")[0] == "merge"


def slot_ports(slot: str) -> range:
    """Return the ports of a slot, the first of which is its LIZA_PORT_BASE."""
    first = FIRST_PORT + PORTS_PER_SLOT * _slot_number(slot)
    return range(first, first + PORTS_PER_SLOT)


def _slot_number(slot: str) -> int:
    match = _SLOT_NAME.fullmatch(slot)
    if match is None:
        return _NUMBERS - 1
    first = _FIRST_NUMBERS[match["kind"]]
    following = min((number for number in _FIRST_NUMBERS.values() if number > first), default=_NUMBERS)
    return first + int(match["number"] or 0) % (following - first)
