"""The screen Board: every task in the lane of its word, with what it needs; then the epics."""

from __future__ import annotations

from collections.abc import Iterator

from liza.model.derived import find_owner, status_since
from liza.model.statuses import TaskWord
from liza.ui.rules.filtering import lists_task, waiting_subjects
from liza.ui.rules.lines import Cell, Line, Target, TargetKind, Tone, cut_line, make_row, make_rule, text_line
from liza.ui.rules.now import group_lines
from liza.ui.rules.picture_view import PictureView
from liza.ui.rules.snapshot import Snapshot
from liza.ui.rules.task_lines import (
    AGE_CELLS,
    NARROW_BELOW,
    ORDER,
    OWNER_CELLS,
    TASK_SIGNS,
    TINY_BELOW,
    age_since,
    name_cells,
    short_name,
)
from liza.view.rules.structs import Picture, TaskRow

_EPIC_CELLS = 12


def draw(snapshot: Snapshot, view: PictureView) -> tuple[Line, ...]:
    """Return the lines of the screen."""
    picture = snapshot.picture
    assert isinstance(picture, Picture)
    if not picture.tasks and not picture.archived:
        return (text_line("no tasks yet: liza up wakes a planner; or + adds one"),)
    return tuple(cut_line(line, view.list_columns) for line in (*_lanes(picture, view), *_epics(picture, view)))


def _lanes(picture: Picture, view: PictureView) -> Iterator[Line]:
    waiting = waiting_subjects(picture)
    for word in ORDER:
        rows = [row for row in picture.tasks if row.word is word and lists_task(view.filter, row, waiting)]
        yield from group_lines(word, rows, picture, view, _card)


def _card(row: TaskRow, picture: Picture, width: int) -> Line:
    """Return a task as a row: what is to be done, what it needs first, its epic, who has it, since when."""
    sign, tone = TASK_SIGNS[row.word]
    task = row.task
    needs = f"needs {', '.join(row.waits_for)}: " if row.waits_for else ""
    text = row.reason if row.overlaps else f"{needs}{task.description}"
    cells = [Cell(sign, 1, tone), Cell(task.id, name_cells(width)), Cell(text)]
    if any(other.task.epic for other in picture.tasks) and width >= NARROW_BELOW:
        cells.append(Cell(task.epic or "", _EPIC_CELLS, Tone.DIM))
    if width >= TINY_BELOW:
        cells.append(Cell(short_name(task.reviewing_by or find_owner(task)), OWNER_CELLS))
    if width >= NARROW_BELOW:
        cells.append(Cell(age_since(status_since(task), picture.time), AGE_CELLS, Tone.DIM, is_right=True))
    return make_row(cells, width, Target(TargetKind.TASK, task.id))


def _epics(picture: Picture, view: PictureView) -> Iterator[Line]:
    epics: dict[str, list[TaskRow]] = {}
    for row in picture.tasks:
        if row.task.epic and row.word is not TaskWord.GIVEN_UP:
            epics.setdefault(row.task.epic, []).append(row)
    if epics:
        yield make_rule(f"EPICS  {len(epics)}", view.list_columns)
    for name, rows in epics.items():
        merged = sum(row.word is TaskWord.MERGED for row in rows)
        landed = sum(row.task.landed is not None for row in rows)
        state = "landed" if landed == len(rows) else "not landed: liza epics"
        cells = (
            Cell(" ", 1),
            Cell(name, name_cells(view.list_columns)),
            Cell(f"{merged} of {len(rows)} merged, {state}"),
        )
        yield make_row(cells, view.list_columns)
