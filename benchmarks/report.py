"""RESULTS.md: one table for each group, with the machine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks import plots
from benchmarks.rows import Row, Samples

HEADER = """\
# Results of `benchmarks/run`

Written by `benchmarks/run`; do not edit. Times are milliseconds. Each row was measured in the same run as its rival,
interleaved. `ratio` is the median of Liza as a multiple of the rival's. [performance.md](../specs/performance.md)
explains the figures, the targets and the plots.
"""


def write_all(directory: Path, facts: dict[str, Any], rows: Sequence[Row]) -> None:
    """Write RESULTS.md, and the plots into `plots`."""
    plots.draw_all(directory / "plots", rows)
    (directory / "RESULTS.md").write_text(format_results(facts, rows), encoding="utf-8")


def format_results(facts: dict[str, Any], rows: Sequence[Row]) -> str:
    """Return the page."""
    parts = [HEADER, _format_machine(facts)]
    for group, members in groupby(rows, key=lambda row: row.group):
        parts.append(f"## {group}\n\n{_format_table(list(members))}")
    return "\n".join(parts)


def _format_machine(facts: dict[str, Any]) -> str:
    rows = "".join(f"| {name} | {value} |\n" for name, value in facts.items())
    return f"| machine | |\n|---|---|\n{rows}"


def _format_table(rows: Sequence[Row]) -> str:
    lines = [
        "| row | unit | median | p95 | p99 | n | target | rival | its median | ratio |",
        "|---|---|---:|---:|---:|---:|---:|---|---:|---:|",
    ]
    notes = []
    for row in rows:
        if row.note:
            notes.append(f"{row.name}: {row.note}.")
        name = row.name + ("¹" * bool(row.note))
        lines.append(f"| {name} | {row.unit} | {_cells(row.own)} | {row.own.count} | {_target(row)} | {_rivals(row)} |")
    text = "\n".join(lines) + "\n"
    return text + "".join(f"\n¹ {note}\n" for note in notes)


def _cells(samples: Samples) -> str:
    if samples.count == 1:
        return f"{samples.median:g} | | "
    return f"{samples.median:g} | {samples.p95:g} | {samples.p99:g}"


def _target(row: Row) -> str:
    if row.target is None:
        return ""
    sign = "≤" if row.better == "lower" else "≥"
    return f"{sign} {row.target:g}{'' if row.is_met else ' **missed**'}"


def _rivals(row: Row) -> str:
    if not row.rivals:
        return " | | "
    names = "<br>".join(row.rivals)
    medians = "<br>".join(f"{samples.median:g}" for samples in row.rivals.values())
    return f"{names} | {medians} | {row.ratio or 0:.2g}"


def describe_row(row: Row) -> str:
    """Return a row as one line for the terminal."""
    text = f"{row.name}: {row.own.median:g} {row.unit}".rstrip()
    if row.own.count > 1:
        text += f" (p95 {row.own.p95:g}, p99 {row.own.p99:g}, n {row.own.count})"
    if row.target is not None:
        text += f", target {'≤' if row.better == 'lower' else '≥'} {row.target:g}{'' if row.is_met else ': MISSED'}"
    rivals = [f"{name} {samples.median:g}" for name, samples in row.rivals.items()]
    return "; ".join([text, *rivals, *([row.note] if row.note else [])])
