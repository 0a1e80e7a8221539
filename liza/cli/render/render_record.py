"""Format the work record of an agent as text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from liza.cli.render.columns import align_columns, paint
from liza.rules.formatting.counts import count_noun
from liza.rules.formatting.times import format_duration

Row = Mapping[str, Any]
_SHOWN_TASKS = 20
_RATES = {
    "approved_at_once": "approved at the first review",
    "merged": "merged",
    "failed": "failed",
    "given_up": "given up",
}


def format_record(record: Row, colour: bool) -> str:
    """Return the record of an agent in this crew, its newest tasks, and a line for each other crew; empty without."""
    parts = []
    if record["tasks"] or any(record["reviews"].values()):
        parts.append("\n".join([paint("work record", "bold", colour), *_summary_lines(record)]))
    if record["tasks"]:
        parts.append(align_columns([tuple(_task_cells(task)) for task in record["tasks"][-_SHOWN_TASKS:]]))
    if record["unreadable"]:
        missing = count_noun(len(record["unreadable"]), "archived task")
        parts.append(
            f"{missing} cannot be read and may belong to this record: {paint('liza validate', 'bold', colour)}"
        )
    parts += [_imported_text(other, colour) for other in record["imported"]]
    return "\n\n".join(parts)


def _summary_lines(record: Row) -> Iterator[str]:
    if record["tasks"]:
        counts = ", ".join(f"{number} {outcome}" for outcome, number in record["counts"].items())
        cost = "" if record["cost"] is None else f", ${record['cost']:.2f}"
        yield f"  {count_noun(len(record['tasks']), 'task')}: {counts}{cost}"
        rates = [f"{record['rates'][name]:.0%} {label}" for name, label in _RATES.items() if record["rates"][name]]
        yield f"  {', '.join(rates) or 'no task is closed yet'}"
        each = record["rates"]["rejections_per_task"]
        quality = [] if each is None else [f"{each:g} rejections per reviewed task"]
        quality += [f"{count_noun(record['failed_merges'], 'failed merge')}"] if record["failed_merges"] else []
        yield from [f"  {', '.join(quality)}"] if quality else []
    for label, name in (("areas", "areas"), ("languages", "languages")):
        if record[name]:
            yield f"  {label}: {', '.join(f'{key} {number}' for key, number in record[name].items())}"
    if record["programs"]:
        yield f"  programs: {', '.join(record['programs'])}"
    reviews = record["reviews"]
    if any(reviews.values()):
        failed = (
            f", {count_noun(reviews['failed_merges'], 'approval')} did not merge" if reviews["failed_merges"] else ""
        )
        yield f"  reviews: {reviews['approved']} approved, {reviews['rejected']} rejected{failed}"


def _task_cells(task: Row) -> Iterator[str]:
    yield f"  {task['task']}"
    yield str(task["outcome"])
    yield count_noun(task["tries"], "try") if task["tries"] == 1 else f"{task['tries']} tries"
    yield f"{count_noun(task['reviews'], 'review')}" if task["reviews"] else ""
    yield "" if task["seconds"] is None else f"approved after {format_duration(task['seconds'])}"
    yield "" if task["cost"] is None else f"${task['cost']:.2f}"


def _imported_text(other: Row, colour: bool) -> str:
    head = (
        paint(f"in {other['repository']}", "bold", colour) + f" (revision {other['revision']}, {other['proof'][:10]})"
    )
    return "\n".join([head, *_summary_lines(other)])
