"""A measured row: samples of Liza, and of its rivals from the same run."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

BLOCKS = 5
"""Consecutive parts of the samples of a row whose medians show how much the machine changed during the run."""


@dataclass(frozen=True)
class Samples:
    """Summary of measured values. ``blocks`` are the medians of BLOCKS consecutive parts, in order of measuring."""

    count: int
    median: float
    p95: float
    p99: float
    blocks: tuple[float, ...]

    @property
    def spread(self) -> float:
        """Difference between the highest and the lowest median of a block, as a share of the median."""
        if len(self.blocks) < 2 or not self.median:
            return 0.0
        return (max(self.blocks) - min(self.blocks)) / abs(self.median)


def summarize(values: Sequence[float]) -> Samples:
    """Summarize values in the order in which they were measured. Raises ValueError if there are none."""
    if not values:
        raise ValueError("no values to summarize")
    number = min(BLOCKS, len(values))
    edges = [round(index * len(values) / number) for index in range(number + 1)]
    blocks = tuple(_round(statistics.median(values[low:high])) for low, high in itertools.pairwise(edges))
    return Samples(
        len(values), _round(statistics.median(values)), percentile(values, 95), percentile(values, 99), blocks
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that ``percent`` of the values do not exceed."""
    ordered = sorted(values)
    return _round(ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)])


def _round(value: float) -> float:
    return float(f"{value:.4g}")


@dataclass(frozen=True)
class Row:
    """One figure. The first rival is the one that the ratio is formed with; ``target`` is in ``unit``.

    ``series`` and ``x`` place the row on a plot; ``is_count`` marks a number that does not depend on the load.
    """

    group: str
    name: str
    unit: str
    own: Samples
    rivals: dict[str, Samples] = field(default_factory=dict)
    target: float | None = None
    better: str = "lower"
    series: str = ""
    x: float | None = None
    note: str = ""
    is_count: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.group, self.name

    @property
    def rival(self) -> tuple[str, Samples] | None:
        return next(iter(self.rivals.items()), None)

    @property
    def ratio(self) -> float | None:
        """Own median as a multiple of the first rival's; None without a rival."""
        rival = self.rival
        return None if rival is None or not rival[1].median else self.own.median / rival[1].median

    @property
    def is_met(self) -> bool | None:
        """Whether the median meets the target, p95 or p99 if the name says so; None without a target."""
        if self.target is None:
            return None
        value = self.own.p99 if "p99" in self.name else self.own.p95 if "p95" in self.name else self.own.median
        return value <= self.target if self.better == "lower" else value >= self.target


def write_rows(path: Path, facts: dict[str, Any], rows: Sequence[Row]) -> None:
    """Write the results as JSON: ``machine`` and the rows."""
    data = {"machine": facts, "rows": [asdict(row) for row in rows]}
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_rows(path: Path) -> tuple[dict[str, Any], list[Row]]:
    """Return the machine and the rows of a file of results. Raises OSError, ValueError, TypeError, KeyError."""
    data = json.loads(path.read_text(encoding="utf-8"))
    return data["machine"], [_row(entry) for entry in data["rows"]]


def _row(entry: dict[str, Any]) -> Row:
    rivals = {name: _samples(value) for name, value in entry["rivals"].items()}
    return Row(**{**entry, "own": _samples(entry["own"]), "rivals": rivals})


def _samples(entry: dict[str, Any]) -> Samples:
    return Samples(**{**entry, "blocks": tuple(entry["blocks"])})
