"""The state of a slot follows from facts, and each slot has ports of its own."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any

import pytest

from liza.git.rules.slot_states import (
    COPY_VARIABLES,
    PORTS_PER_SLOT,
    SlotFacts,
    SlotState,
    find_user_task,
    needs_no_slot,
    release_command,
    slot_status,
    slot_variables,
)
from liza.model.model import Reservation, Status, Task
from tests.unit.merging.test_merging import approved, board

TASK = Task(id="t", status=Status.CLAIMED, worktree="s1")


@pytest.mark.parametrize(
    ("facts", "task", "state", "why", "step"),
    [
        (SlotFacts("s1"), None, SlotState.FREE, "", ""),
        (SlotFacts("s1", unsaved=1), None, SlotState.DIRTY, "1 change that no branch has", "liza slots nuke s1"),
        (SlotFacts("s1", unsaved=2), None, SlotState.DIRTY, "2 changes that no branch has", "liza slots nuke s1"),
        (SlotFacts("s1", unsaved=2), TASK, SlotState.BUSY, "t (working)", ""),
        (SlotFacts("planner-1", user="planning"), None, SlotState.BUSY, "planning", ""),
        (SlotFacts("s1", damage="gone"), TASK, SlotState.DAMAGED, "gone", "liza slots repair s1"),
    ],
)
def test_a_slots_state_has_its_reason_and_one_next_step(
    facts: SlotFacts, task: Task | None, state: SlotState, why: str, step: str
) -> None:
    status = slot_status(facts, task)
    assert (status.state, status.why, status.next) == (state, why, step)


def test_a_slot_belongs_to_its_open_task_only() -> None:
    state = board(approved("a", worktree="s2"), Task(id="b", status=Status.MERGED, worktree="s3"))
    task = find_user_task(state, "s2")
    assert task is not None
    assert task.id == "a"
    assert find_user_task(state, "s3") is None


def test_a_slot_is_needed_while_its_task_is_taken() -> None:
    statuses = {status for status in Status if needs_no_slot(Task(id="t", status=status, worktree="s1"))}
    assert statuses == {Status.UNCLAIMED, Status.REJECTED, Status.INTEGRATION_FAILED, Status.BLOCKED}
    claimer: dict[str, Any] = {"agent": "coder-1", "run": "coder-1.2", "host": "", "boot": "", "pid": 1, "start": "1"}
    reserved = Reservation(**claimer, slot="s1", expires=datetime(2026, 1, 1, tzinfo=UTC))
    assert not needs_no_slot(Task(id="t", status=Status.UNCLAIMED, worktree="s1", reservation=reserved))


def test_no_slots_share_a_port_or_use_ephemeral_ones() -> None:
    names = [f"s{number}" for number in range(1, 200)]
    names += [f"{role}-{number}" for role in ("coder", "code-reviewer") for number in range(1, 100)]
    names += [f"planner-{number}" for number in range(1, 50)]
    names += ["merge", *(f"merge-{number}" for number in range(2, 40)), "proof"]
    ports = {name: int(slot_variables(name)["LIZA_PORT_BASE"]) for name in names}
    first = sorted(ports.values())
    assert all(after - before >= PORTS_PER_SLOT for before, after in itertools.pairwise(first))
    assert first[0] > 1024
    assert first[-1] + PORTS_PER_SLOT <= 32768
    assert slot_variables("s3")["LIZA_SLOT"] == "s3"


@pytest.mark.parametrize(
    ("slot", "port"),
    [
        ("s0", 21000),
        ("s1", 21020),
        ("s199", 24980),
        ("s200", 21000),
        ("coder-1", 25020),
        ("code-reviewer-2", 27040),
        ("planner-1", 29020),
        ("merge", 30000),
        ("merge-3", 30060),
        ("merge-49", 30000),
        ("proof", 30980),
        ("proof-7", 30980),
        ("other", 30980),
    ],
)
def test_the_ports_of_a_slot_follow_from_its_name(slot: str, port: int) -> None:
    """Services that a set-up has started keep their ports after an update of Liza."""
    assert slot_variables(slot) == {"LIZA_SLOT": slot, "LIZA_PORT_BASE": str(port), **COPY_VARIABLES}


def test_a_slot_that_is_being_claimed_belongs_to_its_task() -> None:
    claimer: dict[str, Any] = {"agent": "coder-1", "run": "coder-1.2", "host": "", "boot": "", "pid": 1, "start": "1"}
    reserved = Reservation(**claimer, slot="s7", expires=datetime(2026, 1, 1, tzinfo=UTC))
    waiting = Task(id="t", status=Status.UNCLAIMED, reservation=reserved)
    assert find_user_task(board(waiting), "s7") == waiting
    assert find_user_task(board(waiting), "s1") is None


@pytest.mark.parametrize(
    ("status", "command"),
    [(Status.CLAIMED, "liza task release t"), (Status.READY_FOR_REVIEW, "liza task show t")],
)
def test_the_command_of_its_task_frees_a_held_slot(status: Status, command: str) -> None:
    assert release_command(Task(id="t", status=status)) == command
