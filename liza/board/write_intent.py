"""The seal: which bytes the last writer found, and which it was about to leave."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

import msgspec

from liza.board.text.values import Revision
from liza.system import files

_MAX_SIZE: Final = 1 << 20


class WriteIntent(msgspec.Struct, frozen=True, omit_defaults=True):
    """``renewed`` are the entries that heartbeats changed since the last revision; ``renewed_before`` is the same
    as of the bytes before. ``stood`` is the inode and the time of the file that held the bytes before: a crash leaves
    that very file, a person who puts a copy back leaves another, or a later one."""

    revision: Revision
    before: str
    after: str
    renewed: tuple[tuple[str, str], ...] = ()
    renewed_before: tuple[tuple[str, str], ...] = ()
    stood: tuple[int, int] | None = None

    def rolled_back(self) -> WriteIntent:
        """The seal of the bytes before: what it announced never happened."""
        return WriteIntent(self.revision, self.before, self.before, self.renewed_before, self.renewed_before)


def file_stamp(path: Path) -> tuple[int, int] | None:
    """The inode and the time of a file; None where there is none to be had."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def sha(data: bytes) -> str:
    """The sha256 of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def read_intent(path: Path) -> WriteIntent | None:
    """The seal in a file; None where there is none that can be read."""
    try:
        return msgspec.json.decode(files.read_limited(path, _MAX_SIZE), type=WriteIntent)
    except (OSError, ValueError, RecursionError):
        return None


def save_intent(path: Path, seal: WriteIntent) -> None:
    """Replaces the seal in one step."""
    files.replace_unsynced(path, msgspec.json.encode(seal) + b"\n")
