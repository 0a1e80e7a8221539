"""slots: list the slots with their state and size, and let a person remove or repair them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.git import integration_tip
from liza.git.rules import slot_states
from liza.git.rules.slot_states import SlotState
from liza.git.worktrees import Worktrees, list_slot_names, measure_slot, repair_slot
from liza.merging import slot_limits
from liza.model.errors import Refused, UnknownId
from liza.model.model import State
from liza.programs.liveness import is_session_living
from liza.recovery import recover
from liza.text.formats import did_you_mean, format_bytes


class SlotRow(msgspec.Struct, frozen=True):
    """A slot: its state and why, the task and branch in it, its last agent, and its bytes on disk.

    ``next``: the command that resolves the state; empty if there is nothing to do. ``age``: seconds since the last use.
    """

    name: str
    state: SlotState
    why: str
    next: str
    task: str | None
    branch: str | None
    agent: str | None
    last_used: datetime | None
    age: int | None
    bytes: int
    directory: Path


class SlotList(msgspec.Struct, frozen=True):
    """All slots, their bytes on disk together, and the limits of ``config.slots``."""

    slots: tuple[SlotRow, ...]
    bytes: int
    max: int | None
    max_bytes: int | None


def list_slots(crew: Crew) -> SlotList:
    """Return every slot with its state, and the limits. To measure them takes a while. Raises LizaError, OSError."""
    state = crew.board.read()
    rows = tuple(_slot_row(crew, state, slot) for slot in list_slot_names(crew.worktrees))
    return SlotList(rows, sum(row.bytes for row in rows), state.config.slots.max, state.config.slots.max_bytes)


def _slot_row(crew: Crew, state: State, slot: str) -> SlotRow:
    status = slot_limits.find_status(crew, state, slot)
    task = slot_states.find_user_task(state, slot)
    last = crew.worktrees.last_use(slot)
    is_readable = status.state is not SlotState.DAMAGED
    return SlotRow(
        name=slot,
        state=status.state,
        why=status.why,
        next=status.next,
        task=None if task is None else task.id,
        branch=crew.worktrees.read_work_tree(slot).branch if is_readable else None,
        agent=None if last is None else last.agent,
        last_used=None if last is None else datetime.fromtimestamp(int(last.since), UTC),
        age=None if last is None else max(0, int(crew.clock.now().timestamp() - last.since)),
        bytes=measure_slot(crew.paths, slot),
        directory=crew.paths.slot(slot),
    )


def prune(crew: Crew) -> Result:
    """Remove all free slots. A slot that a claim takes meanwhile stays. Raises Refused, GitFailed, OSError."""
    require_person(crew, planner=False)
    removed = slot_limits.remove_free_slots(crew, list_slot_names(crew.worktrees))
    freed = sum(size for _, size in removed)
    names = [slot for slot, _ in removed]
    message = f"removed {', '.join(names)}: {format_bytes(freed)}" if names else "no slot is free"
    return Result(
        "changed" if names else "unchanged", None, None, "liza slots", {"removed": names, "bytes": freed}, message
    )


def nuke(crew: Crew, slot: str) -> Result:
    """Save the work in a slot that no agent uses, and remove the slot. The agents that used it stay as they are.

    The slot of a task that waits for its next claim is removed, too: the claim restores the work in a new one. Raises
    UnknownId, Refused if it is in use or damaged, GitFailed if its work cannot be saved.
    """
    require_person(crew, planner=False)
    _refuse_unknown(crew.worktrees, slot)

    saved = crew.worktrees.remove(slot, lambda: _refuse_used(crew, slot))
    step = f"git show {saved[0]}" if saved else "liza slots"
    message = f"{slot} is removed" + (f"; its unsaved work is in {', '.join(saved)}" if saved else "")
    return Result("changed", None, None, step, {"removed": [slot], "saved": list(saved)}, message)


def _refuse_used(crew: Crew, slot: str) -> None:
    """Raise Refused if the slot is damaged, an agent holds its task, or the last session in it may still live."""
    state = crew.board.read()
    status, task = slot_limits.find_status(crew, state, slot), slot_states.find_user_task(state, slot)
    if status.state is SlotState.DAMAGED:
        raise Refused(f"{slot} is damaged: {status.why}", status.next)
    if status.state is SlotState.BUSY and (task is None or not slot_states.needs_no_slot(task)):
        step = "liza status" if task is None else slot_states.release_command(task)
        raise Refused(f"{slot} is in use: {status.why}", step)
    owner = None if task is None else crew.worktrees.owner(slot)
    if owner is not None and is_session_living(crew.run_dir(owner[1])):
        raise Refused(f"{slot} is in use: the session {owner[1]} is not over", f"liza logs {owner[1]}")


def repair(crew: Crew, slot: str | None = None) -> Result:
    """Repair a damaged slot, or all of them. Raises UnknownId, Refused, GitFailed, OSError."""
    by = require_person(crew, planner=False)
    if slot is not None:
        _refuse_unknown(crew.worktrees, slot)
    state = crew.board.read()
    names = list_slot_names(crew.worktrees) if slot is None else (slot,)
    damaged = [name for name in names if slot_limits.find_status(crew, state, name).state is SlotState.DAMAGED]
    commit = integration_tip.require_integration(crew.git, state)
    lines = [f"{name}: {repair_slot(crew.worktrees, name, commit)}" for name in damaged]
    # A claimed task gets its worktree again.
    lines += [fixed.message for fixed in recover.repair_worktrees(crew, by)]
    message = "\n".join(lines) or "no slot is damaged"
    return Result("changed" if lines else "unchanged", None, None, "liza slots", {"repaired": damaged}, message)


def _refuse_unknown(worktrees: Worktrees, slot: str) -> None:
    names = list_slot_names(worktrees)
    if slot not in names:
        listed = ", ".join(names) or "none"
        raise UnknownId(f"there is no slot {slot} (there are: {listed}){did_you_mean(slot, names)}", "liza slots")
