"""Read the new lines of a file that another process appends to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from liza.system import untrusted_files

BLOCK = 1 << 20
"""Bytes of one read."""
LONGEST_LINE = 16 << 20
"""Maximum length of a line, in bytes; longer lines are dropped."""


class Tail:
    """The lines that were appended to a file since the last call. A path that does not exist has none.

    ``first``: start that many bytes before the end; None: start at the beginning. ``most``: if there are more new
    bytes, read only that many at the end. If the file became shorter, continue at its end, or with ``anew`` at its
    beginning.
    """

    def __init__(self, path: Path, *, first: int | None = None, most: int | None = None, anew: bool = False) -> None:
        self.path = path
        self.size = 0
        """Bytes of the file that were read or skipped."""
        self._first, self._most, self._anew = first, most, anew
        self._began = first is None
        self._rest = b""

    def lines(self) -> Iterator[str]:
        """Yield the lines that are complete now. Raises NotRegularFile, OSError."""
        end = self._end()
        while self.size < end and (block := self._block(end)):
            *complete, self._rest = (self._rest + block).split(b"\n")
            if len(self._rest) > LONGEST_LINE:
                self._rest = b""
            for line in complete:
                yield line.decode(errors="replace").rstrip("\r")

    def _end(self) -> int:
        """Return the current size of the file, and set ``self.size`` to the offset of the next read."""
        try:
            with untrusted_files.open_to_read(self.path) as file:
                end = file.seek(0, 2)
        except FileNotFoundError:
            return 0
        if not self._began:
            self._began, self.size = True, max(0, end - (self._first or 0))
        if end < self.size:
            self.size, self._rest = 0 if self._anew else end, b""
        if self._most is not None and end - self.size > self._most:
            self.size, self._rest = end - self._most, b""
        return end

    def _block(self, end: int) -> bytes:
        try:
            with untrusted_files.open_to_read(self.path) as file:
                file.seek(self.size)
                block = file.read(min(BLOCK, end - self.size))
        except FileNotFoundError:
            return b""
        self.size += len(block)
        return block
