"""Format the merge queue as text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from liza.cli.render.columns import align_columns, paint
from liza.rules.formatting.durations import format_duration

Row = Mapping[str, Any]
_COLOURS = {"green": "green", "red": "red", "timeout": "red", "running": "cyan"}


def format_queue(shown: Row, colour: bool) -> str:
    """Return the batches under test, the approved tasks in their order, and the gates."""
    parts = [*(_format_batch(batch, colour) for batch in shown["batches"]), _format_tasks(shown["queue"], colour)]
    if shown["gates"]:
        parts.append(_format_gates(shown["gates"], colour))
    return "\n\n".join(parts)


def _format_batch(batch: Row, colour: bool) -> str:
    tasks = batch["tasks"]
    state = "waits for files" if batch["waiting"] else "under test" if batch["tested"] is None else "tested"
    head = f"batch of {len(tasks)} for {batch['into']}, {state}: {', '.join(tasks)}"
    rows = [
        (
            f"  {run['gate']}",
            f"first {run['tasks']}" if run["tasks"] != len(tasks) else "all",
            paint(run["outcome"], _COLOURS[run["outcome"]], colour),
            format_duration(run["seconds"]),
        )
        for run in batch["runs"]
    ]
    return "\n".join(filter(None, (paint(head, "bold", colour), align_columns(rows))))


def _format_tasks(queue: Sequence[Row], colour: bool) -> str:
    if not queue:
        return "no approved task waits for its merge"
    return align_columns([tuple(_task_cells(row, colour)) for row in queue])


def _task_cells(row: Row, colour: bool) -> Iterator[str]:
    yield f"{row['position']:>3}"
    yield str(row["id"])
    yield f"priority {row['priority']}"
    yield f"into {row['into']}"
    yield f"waits {format_duration(row['waiting'])}"
    if row["why"] is not None:
        yield f"{row['why']}  {paint(row['next'], 'bold', colour)}"
    elif row["estimate"] is None:
        yield f"batch {row['batch']}"
    else:
        yield f"batch {row['batch']}, in about {format_duration(row['estimate'])}"


def _format_gates(gates: Sequence[Row], colour: bool) -> str:
    rows = []
    for gate in gates:
        seconds = "not measured" if gate["seconds"] is None else f"about {format_duration(gate['seconds'])}"
        flaky = paint(f"flaky {gate['flaky']} times", "yellow", colour) if gate["flaky"] else ""
        counts = f"{gate['red']} of {gate['runs']} runs red" if gate["runs"] else ""
        rows.append((f"gate {gate['name']}", gate["command"], seconds, counts, flaky))
    return align_columns(rows)
