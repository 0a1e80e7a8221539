"""The screen Task: what `task show` prints, then the diff line by line, with the comments on its lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from liza.model.gates import GateOutcome, GateRun
from liza.model.value_classes import Value
from liza.printing.columns import format_local_time, replace_controls, wrap_text
from liza.printing.render_patch import paint_patch_line
from liza.tasks.diff import TaskDiff
from liza.text.formats import count_noun, format_duration
from liza.ui.rules.lines import Line, Span, Target, TargetKind, Tone, make_rule, painted_lines, text_line, wrap_line
from liza.ui.rules.picture_view import DraftComment, PictureView
from liza.ui.rules.snapshot import Snapshot, TaskPage, Unread

MAX_TESTS: Final = 8
"""Runs of gates that are shown."""
MAX_DIFF_LINES: Final = 5_000
"""Lines of a diff that are shown; a longer one cannot be approved here."""
_OUTCOMES: Final = {GateOutcome.GREEN: Tone.GREEN, GateOutcome.RUNNING: Tone.CYAN}
_HUNK: Final = re.compile(r"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


class DiffRow(Value):
    """A line of a diff. ``location``: ``FILE:LINE`` at the commit; empty for a heading or a removed line.

    ``is_heading``: it is not in a hunk.
    """

    text: str
    location: str = ""
    is_heading: bool = True


@lru_cache(maxsize=4)
def split_diff(diff: str) -> tuple[DiffRow, ...]:
    """Return the lines of a diff as git prints it, with the location of each line that the commit has."""
    rows: list[DiffRow] = []
    path, number, old, new = "", 0, 0, 0  # ``old`` and ``new``: lines that are left of the hunk
    for text in diff.removesuffix("\n").split("\n") if diff else ():
        location = ""
        is_heading = old <= 0 and new <= 0
        if not is_heading:
            start = text[:1]
            if start in ("+", " ") and path:
                location = f"{path}:{number}"
            number += start in ("+", " ")
            new -= start in ("+", " ")
            old -= start in ("-", " ")
        elif match := _HUNK.match(text):
            old, number, new = int(match[1] or 1), int(match[2]), int(match[3] or 1)
        elif text.startswith("+++ "):
            path = _read_path(text)
        rows.append(DiffRow(text, location, is_heading))
    return tuple(rows)


def _read_path(heading: str) -> str:
    """Return the path in a line ``+++ b/PATH``. Empty for a deleted file, and for a path that git quotes."""
    name = heading[4:].removesuffix("\t")
    return name.removeprefix("b/") if name.startswith("b/") else ""


def draw(snapshot: Snapshot, view: PictureView) -> tuple[Line, ...]:
    """Return the lines of the screen. Each can be chosen: the cursor moves through the text as through a list."""
    page = snapshot.task
    assert isinstance(page, TaskPage)
    width = view.list_columns
    text = _wrap_text(page.text, width)
    lines = [Line(line.spans, Target(TargetKind.TEXT, f"text {number}")) for number, line in enumerate(text)]
    return (*lines, *_test_lines(page.tests, width), *_diff_lines(page.diff, view))


def _test_lines(runs: tuple[GateRun, ...] | Unread, width: int) -> Iterator[Line]:
    """Yield the newest runs of gates on the task's candidates."""
    if not runs:
        return
    yield make_rule("TESTS of its candidates", width, Target(TargetKind.TEXT, "tests"))
    if isinstance(runs, Unread):
        yield text_line(f"? {runs.reason}", Tone.DIM, Target(TargetKind.TEXT, "no tests"))
        return
    for number, run in enumerate(runs[-MAX_TESTS:]):
        others = f"  with {count_noun(run.tasks - 1, 'task')} before it" if run.tasks > 1 else ""
        text = f"  {format_local_time(run.time)}  {run.outcome:<8} {run.gate}  {format_duration(run.seconds)}{others}"
        tone = _OUTCOMES.get(run.outcome, Tone.RED)
        yield text_line(text, tone, Target(TargetKind.TEXT, f"test {number}"))


@lru_cache(maxsize=4)
def _wrap_text(text: str, width: int) -> tuple[Line, ...]:
    # `wrap_text` does not break commands: what is still too long is broken at the edge.
    return tuple(part for line in painted_lines(wrap_text(text, width)) for part in wrap_line(line, width))


def _diff_lines(diff: TaskDiff | Unread, view: PictureView) -> Iterator[Line]:
    width = view.list_columns
    if isinstance(diff, Unread):
        yield make_rule("DIFF", width, Target(TargetKind.TEXT, "diff"))
        yield text_line(f"? {diff.reason}", Tone.DIM, Target(TargetKind.TEXT, "no diff"))
        return
    rows = split_diff(diff.diff)
    remarks = {
        location: [_remark_line(remark, number) for number, remark in enumerate(group)]
        for location, group in place_comments(diff, view.comments).items()
    }
    yield make_rule(f"DIFF of {diff.commit[:10]}  {len(rows)} lines", width, Target(TargetKind.TEXT, "diff"))
    for number, notice in enumerate(diff.list_notices()):
        for part, line in enumerate(wrap_line(text_line(notice, Tone.RED), width)):
            yield Line(line.spans, Target(TargetKind.TEXT, f"notice {number}.{part}"))
    yield from remarks.get("", ())
    for number, painted in enumerate(_paint(diff.diff, width)):
        row = rows[number]
        is_marked = number in view.marked
        for part, line in enumerate(painted):
            spans = (Span("▌", Tone.YELLOW), *line.spans) if is_marked else line.spans
            yield Line(spans, Target(TargetKind.DIFF_LINE, f"{number}.{part}"))
        yield from remarks.get(row.location, ()) if row.location else ()
    if len(rows) > MAX_DIFF_LINES:
        left = f"… {len(rows) - MAX_DIFF_LINES} more lines: liza diff {diff.task}"
        yield text_line(left, Tone.YELLOW, Target(TargetKind.TEXT, "more lines"))
    for name in diff.untracked:
        yield text_line(f"untracked: {name}", Tone.YELLOW, Target(TargetKind.TEXT, f"untracked {name}"))


@lru_cache(maxsize=4)
def _paint(diff: str, width: int) -> tuple[tuple[Line, ...], ...]:
    """Return the rows of the screen for each line of a diff. A long line is broken: nothing of it is left out."""
    shown = split_diff(diff)[:MAX_DIFF_LINES]
    painted = (paint_patch_line(replace_controls(row.text), True) for row in shown)
    # A column is left for the mark.
    return tuple(tuple(wrap_line(next(painted_lines(text)), width - 1)) for text in painted)


class Remark(Value):
    """A comment at a line of a diff. ``is_draft``: the person's own, which is sent with a rejection."""

    location: str
    text: str
    commit: str
    is_draft: bool


def place_comments(diff: TaskDiff, drafts: Iterable[DraftComment]) -> Mapping[str, list[Remark]]:
    """Return the comments by the location of their line; those on lines of an earlier commit have none."""
    quotes = {row.location: row.text[1:] for row in split_diff(diff.diff) if row.location}
    groups: dict[str, list[Remark]] = {}
    for row in diff.comments:
        location = f"{row['path']}:{row['line']}"
        is_there = quotes.get(location, "").strip() == str(row["quote"]).strip() != ""
        remark = Remark(location, str(row["text"]), str(row["commit"]), is_draft=False)
        groups.setdefault(location if is_there else "", []).append(remark)
    for draft in drafts:
        if (draft.task, draft.commit) == (diff.task, diff.commit):
            remark = Remark(draft.location, draft.text, draft.commit, is_draft=True)
            groups.setdefault(draft.location if draft.location in quotes else "", []).append(remark)
    return groups


def _remark_line(remark: Remark, number: int) -> Line:
    """Return a comment as a line; ``number`` tells it from others at the same line."""
    if remark.is_draft:
        text, tone, kind = f"  │ yours, sent with the rejection: {remark.text}", Tone.BOLD, "draft"
    else:
        text, tone, kind = f"  │ {remark.location} at {remark.commit[:10]}: {remark.text}", Tone.YELLOW, "comment"
    return text_line(text, tone, Target(TargetKind.TEXT, f"{kind} {remark.location} {number}"))


class Spot(Value):
    """Lines of a diff that a comment is for. ``location``: the first of them that the commit has, as ``FILE:LINE``.

    ``prefix``: what the comment begins with, as the verdict keeps one line only. ``quoted``: the lines.
    """

    location: str
    prefix: str
    quoted: tuple[str, ...]


def describe_lines(diff: TaskDiff, numbers: Sequence[int]) -> Spot | None:
    """Return where a comment on these lines of the diff belongs; None if the commit has no line there.

    A comment on removed lines belongs to the next line that the commit has, or to the line before.
    """
    rows = split_diff(diff.diff)
    marked = [rows[number] for number in numbers]
    located = [row.location for row in marked if row.location]
    if located:
        last = located[-1].rpartition(":")[2]
        prefix = f"to line {last}: " if len(located) > 1 else ""
        return Spot(located[0], prefix, tuple(row.text for row in marked))
    if not any(row.text.startswith("-") for row in marked):
        return None
    nearby = [*rows[numbers[-1] + 1 :], *reversed(rows[: numbers[0]])]
    location = next((row.location for row in nearby if row.location), None)
    text = marked[0].text[1:].strip()
    return None if location is None else Spot(location, f"removed {text!r}: ", tuple(row.text for row in marked))


def row_number(target: Target) -> int:
    """Return the number of a diff's line, from 0."""
    return int(target.name.partition(".")[0])


def name_rows(lines: Iterable[Line]) -> frozenset[str]:
    """Return the names of the rows of a diff among these lines."""
    return frozenset(line.target.name for line in lines if line.target and line.target.kind is TargetKind.DIFF_LINE)


def find_unseen(lines: Iterable[Line], seen: frozenset[str], diff: TaskDiff) -> int:
    """Return how many rows of the diff were not on the screen yet, with the lines of it that are not drawn."""
    names = name_rows(lines)
    drawn = {name.partition(".")[0] for name in names}
    return len(names - seen) + len(split_diff(diff.diff)) - len(drawn)


def find_not_shown(diff: str) -> tuple[str, ...]:
    """Return the lines of a diff that stand for a file without showing its text: binaries, ``-diff`` attributes."""
    return tuple(row.text for row in split_diff(diff) if row.is_heading and row.text.startswith("Binary files "))
