"""The screen Queue: what is merged next and when, why a task waits, which tests run, and why a task left the queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from liza.merging.queue import QueueReport
from liza.merging.rules.merge_queue import QueueExit, QueueRow
from liza.printing.render_queue import format_batch, format_gates
from liza.text.formats import format_duration
from liza.ui.rules.filtering import lists_task, waiting_subjects
from liza.ui.rules.lines import (
    Cell,
    Line,
    Span,
    Target,
    TargetKind,
    Tone,
    cut_line,
    make_row,
    make_rule,
    painted_lines,
    text_line,
)
from liza.ui.rules.picture_view import PictureView
from liza.ui.rules.snapshot import Snapshot
from liza.ui.rules.task_lines import AGE_CELLS, NARROW_BELOW, age_since, age_text, name_cells
from liza.view.rules.structs import Picture


def draw(snapshot: Snapshot, view: PictureView) -> tuple[Line, ...]:
    """Return the lines of the screen."""
    picture, queue = snapshot.picture, snapshot.queue
    assert isinstance(picture, Picture)
    assert isinstance(queue, QueueReport)
    lines = (
        *_tasks(queue, picture, view),
        *_batches(queue, view.list_columns),
        *_exits(queue.left, picture, view.list_columns),
        *_gates(queue, view.list_columns),
        *_landing(picture, view.list_columns),
    )
    return tuple(cut_line(line, view.list_columns) for line in lines)


def _tasks(queue: QueueReport, picture: Picture, view: PictureView) -> Iterator[Line]:
    waiting = waiting_subjects(picture)
    listed = {row.task.id for row in picture.tasks if lists_task(view.filter, row, waiting)}
    rows = [row for row in queue.queue if row.id in listed]
    yield make_rule(f"MERGE QUEUE  {len(rows)}", view.list_columns)
    if not queue.queue:
        yield text_line("no approved task waits for its merge")
    yield from (_queue_line(row, view.list_columns) for row in rows)


def _queue_line(row: QueueRow, width: int) -> Line:
    """Return a task of the queue: its position, why it is not merged now or when it will be, how long it waits."""
    cells = [Cell(str(row.position), 2, is_right=True), Cell(row.id, name_cells(width))]
    if row.why is not None:
        cells.append(Cell(f"{row.why}: {row.next}" if row.next else row.why, tone=Tone.YELLOW))
    else:
        when = "" if row.estimate is None else f", merged in about {format_duration(row.estimate)}"
        cells.append(Cell(f"batch {row.batch}{when}, into {row.into}"))
    if width >= NARROW_BELOW:
        cells.append(Cell(age_text(row.waiting), AGE_CELLS, Tone.DIM, is_right=True))
    return make_row(cells, width, Target(TargetKind.TASK, row.id))


def _batches(queue: QueueReport, width: int) -> Iterator[Line]:
    if queue.batches:
        yield make_rule("BATCHES", width)
        for batch in queue.batches:
            yield from painted_lines(format_batch(batch, True))


def _exits(exits: Sequence[QueueExit], picture: Picture, width: int) -> Iterator[Line]:
    if not exits:
        return
    yield make_rule("LEFT THE QUEUE", width)
    for row in exits:
        sign, tone = ("=", Tone.GREEN) if row.is_merged else ("x", Tone.YELLOW)
        cells = [Cell(sign, 2, tone), Cell(row.id, name_cells(width)), Cell(row.why)]
        if width >= NARROW_BELOW:
            cells.append(Cell(age_since(row.time, picture.time), AGE_CELLS, Tone.DIM, is_right=True))
        yield make_row(cells, width, Target(TargetKind.TASK, row.id))


def _gates(queue: QueueReport, width: int) -> Iterator[Line]:
    if queue.gates:
        yield make_rule("GATES", width)
        yield from painted_lines(format_gates(queue, True))


def _landing(picture: Picture, width: int) -> Iterator[Line]:
    if picture.ahead is not None:
        yield make_rule("LANDING", width)
        yield Line((Span(f"{picture.ahead.summary}: "), Span(picture.ahead.next, Tone.BOLD)))
