"""Render events, revisions and patches as text. Pure: values in, text out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from liza.model.narration import LIZA, NewsItem
from liza.model.paths import PERSON_PREFIX
from liza.printing.columns import format_day, format_local_time, paint, shorten_line
from liza.tasks.diff import TaskDiff
from liza.view.history import RevisionRow

Row = Mapping[str, Any]


class EventList:
    """Events as lines of time, author and text, below the day of each. ``width``: longer lines are cut; None: not.

    ``reader``: the id of the person who reads them, who is called ``you``.
    """

    def __init__(self, now: datetime, width: int | None, colour: bool, reader: str = "") -> None:
        self._now, self._width, self._colour, self._day, self._reader = now, width, colour, "", reader

    def format(self, items: Iterable[NewsItem]) -> str:
        """Return the events as lines; a day that the last call ended with is not named again."""
        lines = []
        for item in items:
            assert item.time is not None
            day = format_day(item.time, self._now)
            if day != self._day:
                lines.append(paint(day, "bold", self._colour))
                self._day = day
            person = "you" if item.who == self._reader else item.who.removeprefix(PERSON_PREFIX)
            start = f"  {item.time.astimezone():%H:%M:%S}  {LIZA if item.liza else person:<15} "
            text = item.text if self._width is None else shorten_line(item.text, self._width - len(start))
            lines.append(paint(start, "dim", self._colour) + text)
        return "\n".join(lines)


def format_history(entries: Iterable[RevisionRow], colour: bool) -> str:
    """Return one line per revision, with its patch if there is one."""
    lines = []
    for entry in entries:
        lines.append(f"{entry.revision:>6}  {format_local_time(entry.time)}  {entry.subject}")
        lines += [paint(f"        ! {alert}", "red", colour) for alert in entry.alerts]
        if entry.patch:
            lines += [paint_patch_line(row, colour) for row in entry.patch.splitlines()]
    return "\n".join(lines)


def format_diff(result: TaskDiff, colour: bool) -> str:
    """Return what to know first, the comments of the last rejection, the patch as git shows it, then the untracked
    files."""
    lines = [paint(notice, "red", colour) for notice in result.list_notices()]
    lines += [paint(_comment_text(row), "yellow", colour) for row in result.comments]
    lines += [paint_patch_line(row, colour) for row in result.diff.splitlines()]
    lines += [paint(f"untracked: {name}", "yellow", colour) for name in result.untracked]
    return "\n".join(lines) or f"{result.task} changes nothing yet"


def _comment_text(row: Row) -> str:
    return f"{row['path']}:{row['line']} at {row['commit'][:10]}: {row['text']}\n  > {row['quote']}"


def paint_patch_line(row: str, colour: bool) -> str:
    """Return a line of a patch in the colour of its kind."""
    if row.startswith(("+++", "---", "diff ", "index ")):
        return paint(row, "bold", colour)
    for start, name in (("+", "green"), ("-", "red"), ("@@", "cyan")):
        if row.startswith(start):
            return paint(row, name, colour)
    return row
