"""When a program printed what: the shim notes the size of a growing ``output.log`` with the time, once a second."""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime
from pathlib import Path

from liza.rules.errors import LizaError
from liza.system import untrusted_files

MAX_NOTES_SIZE = 1 << 22  # maximum size of the notes, in bytes
TIMES_FILE = "output.times"


class OutputTimes:
    """The notes beside an ``output.log``. A smaller size means that the log was cut: earlier notes are dropped."""

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

    def time_at(self, offset: int) -> datetime | None:
        """Return when the byte before ``offset`` was written, to 1-2 seconds; None for output after the last
        note."""
        index = bisect_left(self._sizes, offset)
        return self._times[index] if index < len(self._times) else None


def _read_lines(path: Path) -> list[str]:
    try:
        data = untrusted_files.read_if_exists(path, MAX_NOTES_SIZE)
    except (LizaError, OSError):
        return []
    return [] if data is None else data.decode("ascii", "replace").splitlines()
