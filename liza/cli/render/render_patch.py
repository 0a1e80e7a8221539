"""Render revisions and patches as text. Pure: values in, text out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from liza.cli.render.columns import paint
from liza.cli.render.text_formats import format_local_time

Row = Mapping[str, Any]


def format_history(entries: Iterable[Row], colour: bool) -> str:
    """Return one line per revision, with its patch if there is one."""
    lines = []
    for entry in entries:
        lines.append(f"{entry['revision']:>6}  {format_local_time(entry['time'])}  {entry['subject']}")
        lines += [paint(f"        ! {alert}", "red", colour) for alert in entry["alerts"]]
        if entry["patch"]:
            lines += [_paint_patch_line(row, colour) for row in entry["patch"].splitlines()]
    return "\n".join(lines)


def format_diff(result: Row, colour: bool) -> str:
    """Return the comments of the last rejection, the patch as git shows it, then the untracked files."""
    lines = [paint(_comment_text(row), "yellow", colour) for row in result.get("comments", ())]
    lines += [_paint_patch_line(row, colour) for row in result["diff"].splitlines()]
    lines += [paint(f"untracked: {name}", "yellow", colour) for name in result["untracked"]]
    return "\n".join(lines) or f"{result['task']} changes nothing yet"


def _comment_text(row: Row) -> str:
    return f"{row['path']}:{row['line']} at {row['commit'][:10]}: {row['text']}\n  > {row['quote']}"


def _paint_patch_line(row: str, colour: bool) -> str:
    if row.startswith(("+++", "---", "diff ", "index ")):
        return paint(row, "bold", colour)
    for start, name in (("+", "green"), ("-", "red"), ("@@", "cyan")):
        if row.startswith(start):
            return paint(row, name, colour)
    return row
