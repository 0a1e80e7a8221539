"""The write intent: digests of the board before and after the last write.

It is written before the board is renamed. Compared with the board, it tells whether the last write was completed, was
not, or whether the board was edited from outside.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from liza.board.text.values import Revision
from liza.model.errors import NotRegularFile
from liza.model.value_classes import decodable
from liza.system import files, untrusted_files

_MAX_SIZE: Final = 1 << 20  # bytes of the file


class WriteIntent(msgspec.Struct, frozen=True, omit_defaults=True):
    """``before`` and ``after`` are sha256 digests.

    ``renewed`` are the entries that heartbeats changed since the last revision; ``renewed_before`` is the same for the
    bytes before.
    """

    revision: Revision
    before: str
    after: str
    renewed: tuple[tuple[str, str], ...] = ()
    renewed_before: tuple[tuple[str, str], ...] = ()

    def rolled_back(self) -> WriteIntent:
        """Return the intent that matches the bytes before, after a write that was not completed."""
        return WriteIntent(self.revision, self.before, self.before, self.renewed_before, self.renewed_before)


def read_intent(path: Path) -> WriteIntent | None:
    """Read the intent from a file; None if it is missing or invalid."""
    try:
        return msgspec.json.decode(untrusted_files.read(path, _MAX_SIZE), type=decodable(WriteIntent))
    except (OSError, NotRegularFile, ValueError, RecursionError):
        return None


def save_intent(path: Path, intent: WriteIntent) -> None:
    """Replace the intent in one step, without fsync."""
    files.replace_unsynced(path, msgspec.json.encode(intent) + b"\n")
