"""Which rows are drawn, and how; the plots of `specs/performance.md`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.charts import Bar, Line, bar_chart, line_chart
from benchmarks.rows import Row

TASK_SERIES = ("transition", "read", "first read", "status", "validate", "wake-up")


def draw_all(directory: Path, rows: Sequence[Row]) -> list[Path]:
    """Write every plot for which there are rows; return their paths."""
    directory.mkdir(exist_ok=True)
    drawn = {
        "commands.svg": _commands(rows),
        "tasks.svg": _lines(rows, TASK_SERIES, "Cost by the number of live tasks", "live tasks", "ms"),
        "supervisors.svg": _lines(
            rows, ("supervisors idle", "supervisors with sessions"), "CPU of one revision", "supervisors", "ms"
        ),
        "memory.svg": _lines(rows, ("memory",), "Memory of a supervisor", "transitions", "MB"),
        "long-throughput.svg": _lines(rows, ("throughput",), "Throughput of a crew of 20", "merged tasks", "tasks/s"),
        "long-sizes.svg": _lines(
            rows, ("largest supervisor", ".liza and .git"), "Memory and disk of a crew of 20", "merged tasks", "MB"
        ),
    }
    paths = []
    for name, text in drawn.items():
        if text:
            path = directory / name
            path.write_text(text, encoding="utf-8")
            paths.append(path)
    return paths


def _lines(rows: Sequence[Row], series: Sequence[str], title: str, x_label: str, y_label: str) -> str:
    lines = []
    for name in series:
        points = sorted((row.x or 0.0, row.own.median) for row in rows if row.series == name)
        if points:
            lines.append(Line(name, points))
    rival = sorted((row.x or 0.0, row.rival[1].median) for row in rows if row.series == "transition" and row.rival)
    if "transition" in series and rival:
        lines.append(Line("lock+fsync+rename", rival, is_rival=True))
    return line_chart(title, x_label, y_label, lines) if lines else ""


def _commands(rows: Sequence[Row]) -> str:
    measured = [row for row in rows if row.group == "commands" and row.name.endswith(", server")]
    if not measured:
        return ""
    bars = [Bar(row.name.removesuffix(", server"), row.own.median, row.target) for row in measured]
    rival = measured[0].rival
    if rival is not None:
        bars.append(Bar("bare interpreter", rival[1].median))
    return bar_chart(
        "Time of each command through the server, and its goal", "ms", sorted(bars, key=lambda bar: bar.value)
    )
