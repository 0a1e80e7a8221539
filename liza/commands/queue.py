"""``liza queue``: show the merge queue and change its order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command, declare_group
from liza.crew.crew import find_crew
from liza.merging import queue as verbs
from liza.merging.queue import BatchReport, QueueReport
from liza.merging.rules.merge_queue import QueueRow
from liza.printing import printing
from liza.printing.columns import align_columns, paint
from liza.text.formats import format_duration

app = create_app("Show the merge queue and change its order.")
TaskArgument = Annotated[str, typer.Argument(metavar="ID", help="The task.")]


@declare_group(app, "liza queue", in_sessions=True, position=Position(Heading.MERGES, 16))
def queue(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """Show the merge queue: the order of the approved tasks, the batch under test, and the gates with their times."""
    if ctx.invoked_subcommand is not None:
        return
    shown = verbs.show_queue(find_crew())
    printing.print_json(shown) if as_json else printing.print_wrapped(format_queue(shown, printing.wants_colours()))


@declare_command(app, "move", "liza queue move invoice-model 1", position=Position(Heading.MERGES, 17))
def move(
    task_id: TaskArgument,
    position: Annotated[int, typer.Argument(metavar="POSITION", help="The new position; 1 is merged first.")],
    as_json: JsonOption = False,
) -> None:
    """Merge an approved task earlier or later. Its position counts before priorities and waiting times."""
    printing.print_result(verbs.move(find_crew(), task_id, position), as_json)


@declare_command(
    app, "hold", 'liza queue hold invoice-model "after the release"', position=Position(Heading.MERGES, 18)
)
def hold(
    task_id: TaskArgument,
    why: Annotated[str, typer.Argument(metavar="WHY", help="The reason, for `liza queue` and `liza status`.")],
    as_json: JsonOption = False,
) -> None:
    """Keep a task from being merged until `liza queue release`. Others are merged meanwhile."""
    printing.print_result(verbs.hold(find_crew(), task_id, why), as_json)


@declare_command(app, "release", "liza queue release invoice-model", position=Position(Heading.MERGES, 19))
def release(task_id: TaskArgument, as_json: JsonOption = False) -> None:
    """End the hold of a task, so that it can be merged."""
    printing.print_result(verbs.release(find_crew(), task_id), as_json)


@declare_command(app, "retry", "liza queue retry invoice-model", position=Position(Heading.MERGES, 20))
def retry(task_id: TaskArgument, as_json: JsonOption = False) -> None:
    """Try a task whose merge failed again now, not only after its pause."""
    printing.print_result(verbs.retry(find_crew(), task_id), as_json)


_COLOURS = {"green": "green", "red": "red", "timeout": "red", "running": "cyan"}


def format_queue(shown: QueueReport, colour: bool) -> str:
    """Return the batches under test, the approved tasks in their order, and the gates."""
    parts = [*(_format_batch(batch, colour) for batch in shown.batches), _format_tasks(shown.queue, colour)]
    if shown.gates:
        parts.append(_format_gates(shown, colour))
    return "\n\n".join(parts)


def _format_batch(batch: BatchReport, colour: bool) -> str:
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


def _format_gates(shown: QueueReport, colour: bool) -> str:
    rows = []
    for gate in (*filter(None, (shown.setup,)), *shown.gates):
        seconds = "not measured" if gate.seconds is None else f"about {format_duration(gate.seconds)}"
        flaky = paint(f"flaky {gate.flaky} times", "yellow", colour) if gate.flaky else ""
        counts = f"{gate.red} of {gate.runs} runs red" if gate.runs else ""
        name = gate.name if gate is shown.setup else f"gate {gate.name}"
        rows.append((name, gate.command, seconds, counts, flaky))
    return align_columns(rows)
