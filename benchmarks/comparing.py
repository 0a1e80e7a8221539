"""Compare two runs: which rows became slower by more than the noise of the runs.

The rule. The change of a row is the quotient of its two medians. If the row has a rival, the change is divided by the
rival's own change: a machine that became slower as a whole slows both. The noise is the root of the sum of the squared
spreads of all medians in that quotient, and at least FLOOR. A spread is the difference between the highest and the
lowest median of five consecutive blocks of the samples, as a share of the median: it contains the random scatter, and
also a load that came or went during the run. Fewer than five samples cannot show their scatter: then the noise is at
least FEW_FLOOR. A row is worse if the change is above the noise and its own median became worse too: on a machine with
less load than before, a rival may gain more than the row. A count has no noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.rows import BLOCKS, Row, Samples

FLOOR = 0.05
"""Share below which no change of a time is reported: two runs of the same code differ by as much."""
FEW_FLOOR = 0.3
"""The same for a row with fewer than BLOCKS samples in one of the runs."""


@dataclass(frozen=True)
class Change:
    """How one row changed: ``factor`` above 1 is worse; ``noise`` is the share that it may change by chance.

    ``own`` is the change of the row's own median, without regard to its rival.
    """

    row: Row
    before: Row
    factor: float
    noise: float
    own: float

    @property
    def is_worse(self) -> bool:
        return self.factor > 1 + self.noise and self.own > 1

    @property
    def is_better(self) -> bool:
        return self.factor < 1 / (1 + self.noise)

    def describe(self) -> str:
        """Return the change as a line: the medians, those of the rival, the factor, the noise."""
        word = "worse" if self.is_worse else "better" if self.is_better else "same"
        rival = self.row.rival
        rivals = ""
        if rival is not None and rival[0] in self.before.rivals:
            rivals = f"; {rival[0]} {self.before.rivals[rival[0]].median:g} → {rival[1].median:g}"
        return (
            f"{word:6} {self.row.group}: {self.row.name}: {self.before.own.median:g} → {self.row.own.median:g} "
            f"{self.row.unit}{rivals}; {self.factor:.2f} times as {'much' if self.row.is_count else 'slow'}, "
            f"noise ±{self.noise:.0%}"
        )


def compare_rows(before: Sequence[Row], after: Sequence[Row]) -> list[Change]:
    """Return the change of each row that is in both runs, the worst first."""
    old = {row.key: row for row in before}
    changes = [find_change(old[row.key], row) for row in after if row.key in old]
    return sorted((change for change in changes if change is not None), key=lambda change: -change.factor)


def find_change(before: Row, after: Row) -> Change | None:
    """Return how a row changed; None if a median is zero or negative, so that there is no quotient."""
    medians = [before.own, after.own]
    rival = after.rival
    normalized = rival is not None and rival[0] in before.rivals and not after.is_count
    if rival is not None and normalized:
        medians += [before.rivals[rival[0]], rival[1]]
    if any(samples.median <= 0 for samples in medians):
        return (
            None if before.own.median != 0 or after.own.median <= 0 else Change(after, before, math.inf, 0.0, math.inf)
        )
    factor = after.own.median / before.own.median
    if after.better == "higher":
        factor = 1 / factor
    own = factor
    if normalized:
        # A rival in the other direction (transitions per second) becomes slower when its median falls.
        slowdown = medians[3].median / medians[2].median
        factor /= 1 / slowdown if after.better == "higher" else slowdown
    return Change(after, before, factor, 0.0 if after.is_count else _noise(medians), own)


def _noise(medians: Sequence[Samples]) -> float:
    # A computed rival is one exact value.
    few = any(samples.count < BLOCKS for samples in medians[:2])
    return max(FEW_FLOOR if few else FLOOR, math.sqrt(sum(samples.spread**2 for samples in medians)))
