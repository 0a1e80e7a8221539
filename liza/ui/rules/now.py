"""The screen Now: what waits for a person, then the tasks from those in work to the merged ones, then what happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from liza.model.derived import status_since
from liza.model.statuses import TaskWord
from liza.printing.render_crew import format_signal, goal_end_lines
from liza.printing.render_patch import EventList
from liza.text.formats import count_noun
from liza.ui.rules.filtering import lists_task, waiting_subjects
from liza.ui.rules.lines import (
    EMPTY,
    Line,
    Target,
    TargetKind,
    Tone,
    cut_line,
    make_rule,
    painted_lines,
    text_line,
)
from liza.ui.rules.picture_view import Fold, PictureView
from liza.ui.rules.snapshot import Snapshot, Unread
from liza.ui.rules.task_lines import ORDER, age_since, alarm_lines, task_line
from liza.view.rules.structs import Picture, TaskRow

_FOLDS: Final = {TaskWord.MERGED: (Fold.MERGED, "m"), TaskWord.GIVEN_UP: (Fold.GIVEN_UP, "X")}
"""Fold of the tasks that are over, and its key."""
_WHOLE_WAITS_SHARE = 2
"""The alarms that wait are shown whole if they fill at most this part of the rows."""
_MIN_LATEST = 3


def draw(snapshot: Snapshot, view: PictureView) -> tuple[Line, ...]:
    """Return the lines of the screen."""
    picture = snapshot.picture
    assert isinstance(picture, Picture)
    lines = [
        *_state_lines(picture),
        *_waits(picture, view),
        *_news(picture, view),
        *_tasks(picture, view),
    ]
    lines = [cut_line(line, view.list_columns) for line in lines]
    return (*lines, *_latest(snapshot, view, view.body_rows - len(lines)))


def _state_lines(picture: Picture) -> Iterator[Line]:
    """Yield what holds for the whole crew: whether it is stopped, signals that are set, and how the goal ended."""
    if picture.up:
        yield text_line(f"the crew is stopped: {picture.up}", Tone.YELLOW)
    yield from (text_line(format_signal(*row), Tone.YELLOW) for row in picture.signals.items())
    yield from (text_line(text, Tone.YELLOW) for text in picture.limits)
    yield from (text_line(text, Tone.BOLD) for text in goal_end_lines(picture))
    if not picture.tasks and not picture.archived:
        yield text_line("no tasks yet: liza up wakes a planner; or + adds one")
    if not picture.agents:
        yield text_line("no agents yet: liza up")


def _waits(picture: Picture, view: PictureView) -> Iterator[Line]:
    if not picture.waits:
        return
    width = view.list_columns
    whole = [list(alarm_lines(alarm, picture, width, Tone.RED)) for alarm in picture.waits]
    is_short = sum(map(len, whole)) * _WHOLE_WAITS_SHARE > view.body_rows
    yield make_rule(f"WAITS FOR YOU  {len(picture.waits)}", width)
    for alarm, lines in zip(picture.waits, whole, strict=True):
        yield from alarm_lines(alarm, picture, width, Tone.RED, is_short=True) if is_short else lines


def _news(picture: Picture, view: PictureView) -> Iterator[Line]:
    """Yield what a person may want to know and does not wait for them; folded."""
    facts = [text for text in (picture.server_failure, picture.outdated_proof) if text]
    reports = (*picture.discoveries, *picture.anomalies)
    number = len(picture.news) + len(facts) + len(reports)
    if not number:
        return
    width = view.list_columns
    hint = "" if Fold.NEWS in view.unfolded else "   enter shows them"
    yield make_rule(f"GOOD TO KNOW  {number}{hint}", width, Target(TargetKind.FOLD, Fold.NEWS))
    if Fold.NEWS in view.unfolded:
        for alarm in picture.news:
            yield from alarm_lines(alarm, picture, width, Tone.YELLOW)
        yield from (text_line(f"! {text}", Tone.YELLOW) for text in facts)
        for row in reports:
            yield text_line(f"! {row.id} {row.kind}, by {row.by or 'unknown'}: {row.text}", Tone.YELLOW)


def _tasks(picture: Picture, view: PictureView) -> Iterator[Line]:
    waiting = waiting_subjects(picture)
    for word in ORDER:
        # A task that waits is above.
        rows = [row for row in picture.tasks if row.word is word and row.task.id not in waiting]
        rows = [row for row in rows if lists_task(view.filter, row, waiting)]
        yield from group_lines(word, rows, picture, view, _task_line)


def _task_line(row: TaskRow, picture: Picture, width: int) -> Line:
    return task_line(row, picture.time, width)


RowDrawing = Callable[[TaskRow, Picture, int], Line]


def group_lines(
    word: TaskWord, rows: Sequence[TaskRow], picture: Picture, view: PictureView, draw_row: RowDrawing
) -> Iterator[Line]:
    """Yield the tasks with a word below their heading; those that are over are folded, the newest first."""
    width, (fold, key) = view.list_columns, _FOLDS.get(word, (None, ""))
    number = len(rows) if fold is None or view.is_filtered else picture.counts.get(word, 0)
    if not number:
        return
    title = f"{word.upper()}  {number}"
    if fold is None:
        yield make_rule(title, width)
    else:
        rows = sorted(rows, key=lambda row: _seconds(row, picture))
        hint = f"   {key} {'folds' if fold in view.unfolded else 'shows'} them"
        yield make_rule(f"{title}{_last_text(rows, picture)}{hint}", width, Target(TargetKind.FOLD, fold))
    if fold is None or fold in view.unfolded:
        yield from (draw_row(row, picture, width) for row in rows)
        if word is TaskWord.MERGED and picture.archived:
            tasks = count_noun(picture.archived, "closed task")
            yield text_line(f"{tasks} in the archive: liza task list --archived", Tone.DIM, indent="  ")


def _last_text(rows: Sequence[TaskRow], picture: Picture) -> str:
    """Return which task was the last one, and how long ago. ``rows``: the newest first."""
    age = age_since(status_since(rows[0].task), picture.time) if rows else ""
    return f"   last: {rows[0].task.id}, {age} ago" if age else ""


def _seconds(row: TaskRow, picture: Picture) -> float:
    since = status_since(row.task)
    return float("inf") if since is None else (picture.time - since).total_seconds()


def _latest(snapshot: Snapshot, view: PictureView, height: int) -> Iterator[Line]:
    """Yield the newest events in the rest of the height, on a wide terminal."""
    if not view.side_columns or height < _MIN_LATEST + 2 or snapshot.latest is None:
        return
    yield EMPTY
    yield make_rule("LATEST", view.list_columns)
    if isinstance(snapshot.latest, Unread):
        yield text_line(f"? {snapshot.latest.reason}: {snapshot.latest.next}", Tone.RED)
        return
    newest = snapshot.latest.items[-(height - 3) :]
    text = EventList(snapshot.time, view.list_columns, True).format(reversed(newest))
    yield from (cut_line(line, view.list_columns) for line in list(painted_lines(text))[: height - 2])
