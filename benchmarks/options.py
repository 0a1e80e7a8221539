"""What a run was asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Options:
    """``scratch``: directory for the measured repositories. ``quick``: few rounds, small sizes."""

    scratch: Path
    quick: bool
    log: Callable[[str], None]

    def rounds(self, number: int) -> int:
        """Return how often to repeat a measurement that a whole run repeats ``number`` times."""
        return max(2, number // 10) if self.quick else number
