"""When a program printed what: once a second while ``output.log`` grows the shim notes its size with the time."""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime
from pathlib import Path

from liza.rules.errors import LizaError
from liza.system import atomic

MAX_NOTES_SIZE = 1 << 22  # bytes of notes that are read
TIMES_FILE = "output.times"


class OutputTimes:
    """The notes beside an ``output.log``. A file that was cut begins anew: what was noted before says nothing of it."""

    def __init__(self, output: Path) -> None:
        self._times: list[datetime] = []
        self._sizes: list[int] = []
        for line in _read_lines(output.with_name(TIMES_FILE)):
            when, _, size = line.partition(" ")
            if not (when.isdigit() and size.isdigit() and len(when) < 12):
                continue
            if self._sizes and int(size) < self._sizes[-1]:
                self._times, self._sizes = [], []
            self._times.append(datetime.fromtimestamp(int(when), UTC))
            self._sizes.append(int(size))

    def time_at(self, place: int) -> datetime | None:
        """When the byte before ``place`` was there, to a second or two; None for what came after the last note."""
        found = bisect_left(self._sizes, place)
        return self._times[found] if found < len(self._times) else None


def _read_lines(path: Path) -> list[str]:
    try:
        data = atomic.read_if_exists(path, MAX_NOTES_SIZE)
    except (LizaError, OSError):
        return []
    return [] if data is None else data.decode("ascii", "replace").splitlines()
