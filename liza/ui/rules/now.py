"""The screen Now: what waits for a person, then the tasks from those in work to the merged ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from liza.model.alarm_table import AlarmRow
from liza.model.statuses import TaskWord
from liza.text.formats import format_duration
from liza.ui.rules.lines import Cell, Line, Target, TargetKind, Tone, make_row, make_rule
from liza.ui.rules.picture_view import PictureView
from liza.ui.rules.snapshot import Snapshot
from liza.view.rules.structs import Picture, TaskRow

TASK_SIGNS: Final = {
    TaskWord.WORKING: (">", Tone.CYAN),
    TaskWord.TO_FIX: ("x", Tone.YELLOW),
    TaskWord.ASKS: ("!", Tone.RED),
    TaskWord.IN_REVIEW: ("?", Tone.BLUE),
    TaskWord.TO_DO: ("o", Tone.PLAIN),
    TaskWord.MERGED: ("=", Tone.GREEN),
    TaskWord.GIVEN_UP: ("-", Tone.DIM),
}
"""Sign and tone of each word of a task."""
ORDER: Final = (
    TaskWord.WORKING,
    TaskWord.TO_FIX,
    TaskWord.ASKS,
    TaskWord.IN_REVIEW,
    TaskWord.TO_DO,
    TaskWord.MERGED,
    TaskWord.GIVEN_UP,
)
"""The words of tasks, in the order of the groups."""
_NAME_CELLS = 16
_WORD_CELLS = 9
_AGE_CELLS = 9


def draw(snapshot: Snapshot, view: PictureView) -> tuple[Line, ...]:
    """Return the lines of the screen."""
    picture = snapshot.picture
    assert isinstance(picture, Picture)
    return (*_waits(picture, view.list_columns), *_tasks(picture, view))


def _waits(picture: Picture, width: int) -> Iterator[Line]:
    if picture.waits:
        yield make_rule(f"WAITS FOR YOU  {len(picture.waits)}", width)
        yield from (alarm_line(alarm, picture, width) for alarm in picture.waits)


def alarm_line(alarm: AlarmRow, picture: Picture, width: int) -> Line:
    """Return an alarm as a row."""
    age = "" if alarm.seconds is None else format_duration(alarm.seconds)
    is_task = any(row.task.id == alarm.about for row in picture.tasks)
    target = Target(TargetKind.TASK if is_task else TargetKind.AGENT, alarm.about)
    cells = (Cell("!", 1, Tone.RED), Cell(alarm.about, _NAME_CELLS), Cell(alarm.message), Cell(age, _AGE_CELLS))
    return make_row(cells, width, target)


def _tasks(picture: Picture, view: PictureView) -> Iterator[Line]:
    asked = {alarm.about for alarm in picture.waits}
    for word in ORDER:
        rows = [row for row in picture.tasks if row.word is word and row.task.id not in asked]
        if rows and (word is not TaskWord.MERGED or view.shows_merged):
            yield from _group(word, rows, view.list_columns)


def _group(word: TaskWord, rows: Iterable[TaskRow], width: int) -> Iterator[Line]:
    listed = list(rows)
    yield make_rule(f"{word.upper()}  {len(listed)}", width)
    yield from (task_line(row, width) for row in listed)


def task_line(row: TaskRow, width: int) -> Line:
    """Return a task as a row."""
    sign, tone = TASK_SIGNS[row.word]
    cells = (Cell(sign, 1, tone), Cell(row.task.id, _NAME_CELLS), Cell(row.word, _WORD_CELLS, tone), Cell(row.reason))
    return make_row(cells, width, Target(TargetKind.TASK, row.task.id))
