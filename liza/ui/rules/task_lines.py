"""Tasks and alarms as rows of a list."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from liza.model.alarm_table import AlarmRow
from liza.model.derived import find_owner, status_since
from liza.model.statuses import TaskWord
from liza.text.formats import MINUTE, format_duration
from liza.ui.rules.lines import Cell, Line, Span, Target, TargetKind, Tone, clean, make_row, wrap_line
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
ORDER: Final = tuple(TASK_SIGNS)
"""The words of tasks, in the order of their groups."""
WIDE_FROM, NARROW_BELOW, TINY_BELOW = 96, 60, 50
"""Columns from which the try is shown; below which word and age are left out; below which the owner is, too."""
WORD_CELLS, OWNER_CELLS, AGE_CELLS, TRY_CELLS = 9, 10, 7, 6
_MAX_WAIT_LINES = 3
"""Lines for the text of an alarm that waits."""


def name_cells(width: int) -> int:
    """Return the cells for the id of a task or agent in a list of this width."""
    return 24 if width >= WIDE_FROM else 16 if width >= NARROW_BELOW else 12


def age_text(seconds: float | None) -> str:
    """Return a duration in its largest unit, such as ``38 min``; empty if it is unknown."""
    if seconds is None:
        return ""
    return "<1 min" if seconds < MINUTE else " ".join(_minutes(seconds).split()[:2])


def _minutes(seconds: float) -> str:
    return f"{int(seconds // MINUTE)} min" if seconds < 2 * MINUTE else format_duration(seconds)


def age_since(since: datetime | None, now: datetime) -> str:
    """Return how long ago that was; empty if it is unknown."""
    return "" if since is None else age_text(max(0.0, (now - since).total_seconds()))


def task_line(row: TaskRow, now: datetime, width: int) -> Line:
    """Return a task as a row: sign, id, word, why it is where it is, who has it, its try, and since when."""
    sign, tone = TASK_SIGNS[row.word]
    task = row.task
    cells = [Cell(sign, 1, tone), Cell(task.id, name_cells(width))]
    if width >= NARROW_BELOW:
        cells.append(Cell(row.word, WORD_CELLS, tone))
    cells.append(Cell(row.reason))
    if width >= TINY_BELOW:
        cells.append(Cell(short_name(task.reviewing_by or find_owner(task)), OWNER_CELLS))
    if width >= WIDE_FROM:
        cells.append(Cell(f"try {task.iteration}" if task.iteration else "", TRY_CELLS))
    if width >= NARROW_BELOW:
        cells.append(Cell(age_since(status_since(task), now), AGE_CELLS, Tone.DIM, is_right=True))
    return make_row(cells, width, Target(TargetKind.TASK, task.id))


def short_name(agent: str) -> str:
    """Return an agent's name without the first part of its role: `reviewer-1`, which commands take, too."""
    return agent.removeprefix("code-")


def alarm_target(alarm: AlarmRow, picture: Picture) -> Target:
    """Return what an alarm is about: a task, an agent, or itself."""
    if any(row.task.id == alarm.about for row in picture.tasks):
        return Target(TargetKind.TASK, alarm.about)
    if any(line.row.id == alarm.about for line in picture.agents):
        return Target(TargetKind.AGENT, alarm.about)
    return Target(TargetKind.ALARM, f"{alarm.kind}:{alarm.about}")


def alarm_text(alarm: AlarmRow) -> str:
    """Return the message of an alarm without its subject: the row shows that in a cell of its own."""
    message = clean(alarm.message)
    rest = message.removeprefix(alarm.about)
    return rest.lstrip(" :") if rest != message and rest[:1] in (" ", ":") else message


def alarm_lines(alarm: AlarmRow, picture: Picture, width: int, tone: Tone, *, is_short: bool = False) -> Iterator[Line]:
    """Yield an alarm as a row; the rest of its text and its command below, unless ``is_short``."""
    names, target = name_cells(width), alarm_target(alarm, picture)
    age = AGE_CELLS if width >= NARROW_BELOW else 0
    room = max(1, width - names - 3 - (age + 1 if age else 0))
    parts = list(wrap_words(alarm_text(alarm), room))
    first = alarm_text(alarm) if is_short else parts[0]
    cells = [Cell("!", 1, tone), Cell(alarm.about, names), Cell(first)]
    if age:
        cells.append(Cell(age_text(alarm.seconds), age, Tone.DIM, is_right=True))
    yield make_row(cells, width, target)
    if is_short:
        return
    rest = [*parts[1 : _MAX_WAIT_LINES - 1], *([" ".join(parts[_MAX_WAIT_LINES - 1 :])] if len(parts) > 2 else [])]
    for text in rest:
        yield make_row((Cell("", names + 2), Cell(text)), width)
    if alarm.next:
        yield make_row((Cell("", names + 2), Cell(alarm.next, tone=Tone.BOLD)), width)


def wrap_words(text: str, width: int) -> Iterator[str]:
    """Yield a text in rows of at most ``width`` cells, broken between words where that is possible."""
    row: list[str] = []
    for word in text.split(" "):
        candidate = " ".join([*row, word])
        parts = [part.text for part in wrap_line(Line((Span(candidate),)), width)]
        if len(parts) == 1:
            row.append(word)
            continue
        if row:
            yield " ".join(row)
            parts = [part.text for part in wrap_line(Line((Span(word),)), width)]
        yield from parts[:-1]
        row = [parts[-1]]
    yield " ".join(row)
