"""The diff of a task as a page shows it: runs of lines, comments at their lines, and what a verdict on it needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from liza.model.value_classes import Value
from liza.printing.columns import replace_controls
from liza.tasks.diff import TaskDiff
from liza.ui.rules.picture_view import DraftComment
from liza.ui.rules.task_screen import MAX_DIFF_LINES, DiffRow, Remark, find_not_shown, place_comments, split_diff
from liza.ui.web.page_actions import digest_diff

MAX_INLINE: Final = 300
"""Lines of a diff that a page shows at first; a link leads to the rest."""
_MAX_LABEL: Final = 80
"""Letters of a line where it is chosen for a comment."""


class DiffRun(Value):
    """Lines of the same kind, one below the other. ``sign``: ``+``, ``-``, or a blank."""

    sign: str
    text: str


class DiffPart(Value):
    """Lines without a comment between them, with the comments below them.

    ``begins`` and ``ends``: number of the hunk that begins or ends with these lines; 0 if none does.
    """

    runs: tuple[DiffRun, ...]
    remarks: tuple[Remark, ...]
    begins: int
    ends: int


class DiffChoice(Value):
    """A line that can be commented: the number of its row, and its text."""

    row: int
    label: str


class PageDiff(Value):
    """A diff on a page. ``is_whole``: all of it is there.

    ``remarks``: comments whose line is not in the diff. ``choices``: the lines of the hunk that is commented.
    ``hidden``: lines that stand for a file without its text. ``notices``: lines to read first.
    """

    commit: str
    lines: int
    parts: tuple[DiffPart, ...]
    remarks: tuple[Remark, ...]
    choices: tuple[DiffChoice, ...]
    hidden: tuple[str, ...]
    untracked: tuple[str, ...]
    notices: tuple[str, ...]
    digest: str
    is_whole: bool

    @property
    def is_cut(self) -> bool:
        """Whether lines are missing that the page with all lines has."""
        return not self.is_whole and self.lines <= MAX_DIFF_LINES

    @property
    def is_too_long(self) -> bool:
        """Whether no page shows all of it."""
        return self.lines > MAX_DIFF_LINES


def show_diff(diff: TaskDiff, drafts: Sequence[DraftComment], *, is_all: bool, hunk: int | None) -> PageDiff:
    """Return a diff for a page. ``hunk``: number of the hunk that is commented, from 1."""
    rows = split_diff(diff.diff)
    limit = MAX_DIFF_LINES if is_all else MAX_INLINE
    remarks = place_comments(diff, drafts)
    shown = rows[:limit]
    hunks = tuple(_number_hunks(shown))
    return PageDiff(
        commit=diff.commit,
        lines=len(rows),
        parts=tuple(_split_parts(shown, hunks, remarks)),
        remarks=tuple(remarks.get("", ())),
        choices=tuple(_list_choices(shown, hunks, hunk)) if hunk else (),
        hidden=find_not_shown(diff.diff),
        untracked=diff.untracked,
        notices=tuple(map(replace_controls, diff.list_notices())),
        digest=digest_diff(diff),
        is_whole=len(shown) == len(rows),
    )


def _number_hunks(rows: Sequence[DiffRow]) -> Iterator[int]:
    """Yield the number of each row's hunk, from 1; 0 for headings of files."""
    number, is_inside = 0, False
    for row in rows:
        if row.is_heading and not row.text.startswith("\\"):  # git's line about a missing line break is a part of it
            is_inside = row.text.startswith("@@ ")
            number += is_inside
        yield number if is_inside else 0


def _split_parts(
    rows: Sequence[DiffRow], hunks: Sequence[int], remarks: Mapping[str, list[Remark]]
) -> Iterator[DiffPart]:
    start = 0
    for end, row in enumerate(rows, 1):
        below = tuple(remarks.get(row.location, ())) if row.location else ()
        is_end = end == len(rows) or hunks[end] != hunks[end - 1]
        if not (below or is_end):
            continue
        begins = hunks[start] if start == 0 or hunks[start] != hunks[start - 1] else 0
        runs = (DiffRun(sign, "\n".join(texts)) for sign, texts in _group_runs(rows[start:end]))
        yield DiffPart(tuple(runs), below, begins, hunks[end - 1] if is_end else 0)
        start = end


def _group_runs(rows: Sequence[DiffRow]) -> Iterator[tuple[str, list[str]]]:
    for sign, group in groupby(rows, _sign_of):
        yield sign, [replace_controls(row.text) for row in group]


def _sign_of(row: DiffRow) -> str:
    if row.is_heading:
        return "@"
    return row.text[:1] if row.text[:1] in ("+", "-") else " "


def _list_choices(rows: Sequence[DiffRow], hunks: Sequence[int], hunk: int) -> Iterator[DiffChoice]:
    """Yield the lines of a hunk; none if the commit has no line there, as in a file that is deleted."""
    inside = [number for number in range(len(rows)) if hunks[number] == hunk and not rows[number].is_heading]
    if not any(rows[number].location for number in inside):
        return
    for number in inside:
        row = rows[number]
        line = row.location.rpartition(":")[2] if row.location else "removed"
        text = replace_controls(row.text).expandtabs(4)
        yield DiffChoice(number, f"{line} {text[:_MAX_LABEL]}{'…' if len(text) > _MAX_LABEL else ''}")
