"""Boards to measure: their text, and one transition."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from liza.board.file_store.file_board import FileBoard
from liza.model.model import Status

TASK = """\
  - id: "task-{n}"
    description: Add the invoice form to the checkout page, number {n}
    status: UNCLAIMED
    priority: 2
    created: "2026-01-01T12:00:00Z"
    spec_ref: specs/goal.md
    done_when: "the tests pass: all of them, and the form shows the total"
    scope: shop/checkout, shop/templates
    depends_on: []
    history:
      - {{time: "2026-01-01T12:00:00Z", event: add, agent: "planner-1"}}
      - {{time: "2026-01-01T12:05:00Z", event: claim, agent: "coder-1", run: "coder-1.7"}}
"""


def board_text(tasks: int) -> str:
    """Return a board with this many tasks."""
    head = "version: 1\nrevision: 1\ngoal:\n  id: g\n  status: IN_PROGRESS\ntasks:\n"
    agents = "agents:\n  coder-1:\n    role: coder\n    status: IDLE\n    runs: 9\n"
    return head + "".join(TASK.format(n=number) for number in range(tasks)) + agents


class WallClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        return datetime.now(UTC).replace(microsecond=0)

    def monotonic(self) -> float:
        import time

        return time.monotonic()


def flip(board: FileBoard, task_id: str) -> None:
    """One transition: block the task, or unblock it."""
    with board.transaction("coder-1.7", "flip", task=task_id) as tx:
        task = tx.state.task(task_id)
        assert task is not None
        if task.status is Status.UNCLAIMED:
            changes = {"blocked_reason": "why not", "blocked_questions": ("Which sender?",)}
            tx.state = tx.state.with_task(msgspec.structs.replace(task, status=Status.BLOCKED, **changes))
        else:
            changes = {"blocked_reason": None, "blocked_questions": ()}
            tx.state = tx.state.with_task(msgspec.structs.replace(task, status=Status.UNCLAIMED, **changes))
