"""Small boards for tables of tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from liza.model.model import Agent, Goal, ProcessIdentity, State, Status, Task
from liza.tasks.rules import claims
from liza.tasks.rules.coding import SubmittedWork
from liza.tasks.rules.picking import Evidence

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
BASE = "b" * 40
HEAD = "c" * 40
OTHER = "d" * 40
HERE = ProcessIdentity(host="box", boot="boot", pid=1, start="1")


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def task(task_id: str = "task-1", status: Status = Status.UNCLAIMED, **fields: Any) -> Task:
    said = {
        "description": "do it",
        "done_when": "it is done",
        "scope": "src/",
        "spec_ref": "spec.md",
        "created": NOW,
    }
    return Task(id=task_id, status=status, **{**said, **fields})


def board(*tasks: Task, **fields: Any) -> State:
    return State(
        version=1, revision=1, goal=Goal(id="goal", description="a goal", status="IN_PROGRESS"), tasks=tasks, **fields
    )


def agents(*names: str, runs: int = 0) -> dict[str, Agent]:
    return {name: Agent(role=name.rpartition("-")[0], status="IDLE", runs=runs) for name in names}


def claimed(state: State, task_id: str = "task-1", agent: str = "coder-1", now: datetime = NOW) -> tuple[State, str]:
    """The board after a whole claim."""
    slot = task_id.replace("task-", "s")
    state, run = claims.reserve(state, task_id, claims.Claimant(agent, HERE), slot, now, Evidence())
    return claims.confirm(state, task_id, run, BASE, now, Evidence()), run


def submitted(state: State, task_id: str = "task-1", agent: str = "coder-1", head: str = HEAD) -> tuple[State, str]:
    from liza.tasks.rules import coding

    state, run = claimed(state, task_id, agent)
    return coding.submit(state, task_id, run, SubmittedWork(head=head, ahead=True, branch=f"task/{task_id}"), NOW), run


def under_review(state: State, reviewer: str = "code-reviewer-1") -> tuple[State, str, str]:
    from liza.tasks.rules import reviews

    state, run = submitted(state)
    state, review = reviews.claim_review(state, "task-1", reviewer, NOW, Evidence(dead=frozenset({run})))
    return state, run, review


def with_config(state: State, **fields: Any) -> State:
    return replace(state, config=replace(state.config, **fields))
