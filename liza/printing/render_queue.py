"""Render the merge queue as text. Pure: values in, text out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from liza.merging.queue import BatchReport, QueueReport
from liza.merging.rules.merge_queue import QueueExit, QueueRow
from liza.printing.columns import align_columns, format_local_time, paint, shorten_line
from liza.text.formats import format_duration

_COLOURS: Final = {"green": "green", "red": "red", "timeout": "red", "running": "cyan"}


def format_queue(shown: QueueReport, colour: bool) -> str:
    """Return the batches under test, the approved tasks in their order, the gates, and which tasks left the queue."""
    parts = [*(format_batch(batch, colour) for batch in shown.batches), _format_tasks(shown.queue, colour)]
    if shown.gates:
        parts.append(format_gates(shown, colour))
    if shown.left:
        parts.append(_format_exits(shown.left))
    return "\n\n".join(parts)


def format_batch(batch: BatchReport, colour: bool) -> str:
    """Return the tasks of a batch, and the runs of its gates."""
    tasks = batch.tasks
    state = "waits for files" if batch.waiting else "under test" if batch.tested is None else "tested"
    head = f"batch of {len(tasks)} for {batch.into}, {state}: {', '.join(tasks)}"
    rows = [
        (
            f"  {run.gate}",
            f"first {run.tasks}" if run.tasks != len(tasks) else "all",
            paint(run.outcome, _COLOURS[run.outcome], colour),
            format_duration(run.seconds),
        )
        for run in batch.runs
    ]
    return "\n".join(filter(None, (paint(head, "bold", colour), align_columns(rows))))


def _format_tasks(queue: Sequence[QueueRow], colour: bool) -> str:
    if not queue:
        return "no approved task waits for its merge"
    return align_columns([tuple(_task_cells(row, colour)) for row in queue])


def _task_cells(row: QueueRow, colour: bool) -> Iterator[str]:
    yield f"{row.position:>3}"
    yield row.id
    yield f"priority {row.priority}"
    yield f"into {row.into}"
    yield f"waits {format_duration(row.waiting)}"
    if row.why is not None:
        yield f"{row.why}  {paint(row.next or '', 'bold', colour)}"
    elif row.estimate is None:
        yield f"batch {row.batch}"
    else:
        yield f"batch {row.batch}, in about {format_duration(row.estimate)}"


def format_gates(shown: QueueReport, colour: bool) -> str:
    """Return one line per gate: its command, its usual time, how often it was red and flaky."""
    rows = []
    for gate in (*filter(None, (shown.setup,)), *shown.gates):
        seconds = "not measured" if gate.seconds is None else f"about {format_duration(gate.seconds)}"
        flaky = paint(f"flaky {gate.flaky} times", "yellow", colour) if gate.flaky else ""
        counts = f"{gate.red} of {gate.runs} runs red" if gate.runs else ""
        name = gate.name if gate is shown.setup else f"gate {gate.name}"
        rows.append((name, gate.command, seconds, counts, flaky))
    return align_columns(rows)


def _format_exits(exits: Sequence[QueueExit]) -> str:
    return align_columns([(f"left  {row.id}", format_local_time(row.time), shorten_line(row.why, 90)) for row in exits])
