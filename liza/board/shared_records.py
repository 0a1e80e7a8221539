"""What the hosts of a crew share beside the board. A crew with its board in files has one host, and files for all this.

Read by each host into files of its own, so that supervisors ask no server: `crew/shared_logs.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple


class SharedLog(StrEnum):
    """A log to which each host appends lines."""

    USAGE = "usage"
    """One line for each session: `.liza/usage.jsonl`."""
    GATES = "gates"
    """One line for each run of a gate: `.liza/gates.jsonl`."""


class NumberedLine(NamedTuple):
    """A line of a log. Numbers ascend, with gaps."""

    number: int
    line: str


class SharedRecords(ABC):
    """The records of one crew on its server. All methods raise BoardServerRefused, BoardUnavailable."""

    @abstractmethod
    def append_lines(self, log: SharedLog, lines: Sequence[str]) -> int:
        """Add those lines that the log does not have; return how many these are."""

    @abstractmethod
    def read_lines(self, log: SharedLog, after: int, limit: int) -> list[NumberedLine]:
        """Return the lines with numbers above ``after``, at most ``limit``."""

    @abstractmethod
    def find_place(self, log: SharedLog, newest: int) -> tuple[int, int]:
        """Return the number before the ``newest`` lines of a log, and that of its last line; 0 without one."""
