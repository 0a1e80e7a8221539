"""The merge queue as rows."""

from __future__ import annotations

from datetime import datetime

from liza.merging.rules import merge_queue
from liza.model import targets
from liza.model.model import State
from liza.model.value_classes import Value


class QueueRow(Value):
    """An approved task in the merge queue as `queue --json` prints it. Times are in seconds.

    ``batch``: the number of the batch that it is merged with. ``estimate``: in how many seconds that ends. ``why``:
    why it is not merged now, with the command for that.
    """

    position: int
    id: str
    into: str
    priority: int
    waiting: int
    batch: int | None = None
    estimate: float | None = None
    why: str | None = None
    next: str | None = None


def queue_rows(state: State, now: datetime) -> tuple[QueueRow, ...]:
    """Return the approved tasks in the order of their merges, each with its batch or why it is not merged now."""
    entries = merge_queue.ordered_queue(state, now)
    ready = [entry.task for entry in entries if entry.obstacle is None]
    planned = merge_queue.plan_batches(ready, merge_queue.batch_size(state.config))
    batches = {task.id: number for number, batch in enumerate(planned, start=1) for task in batch}
    rows = []
    for position, entry in enumerate(entries, start=1):
        task, (why, step) = entry.task, entry.obstacle or (None, None)
        rows.append(
            QueueRow(
                position=position,
                id=task.id,
                into=targets.target_branch(state, task),
                priority=task.priority,
                waiting=int((now - task.history[-1].time).total_seconds()),
                batch=batches.get(task.id),
                why=why,
                next=step,
            )
        )
    return tuple(rows)
