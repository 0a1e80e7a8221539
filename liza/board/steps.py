"""The steps of a commit, one function each, in the order in which a crash can be settled after any of them."""

from __future__ import annotations

from pathlib import Path

from liza.board import files, journal, seal
from liza.board.journal import Record
from liza.board.seal import Seal
from liza.board.spool import Spool, SpoolItem
from liza.rules.paths import Paths


def write_journal(paths: Paths, record: Record) -> None:
    """Step 1: what is about to happen, on the disk."""
    journal.append(paths.journal, record)


def write_seal(paths: Paths, fresh: Seal) -> None:
    """Step 2: the bytes before and after."""
    seal.write(paths.seal, fresh)


def write_spool(spool: Spool, item: SpoolItem) -> None:
    """Step 3: what changed, for history."""
    spool.put(item)


def write_aside(paths: Paths, data: bytes) -> Path:
    """Step 4: the board to come, on the disk, in a directory that nobody watches."""
    fresh = paths.tx / "next"
    files.aside(fresh, data)
    return fresh


def rename(paths: Paths, fresh: Path) -> None:
    """Step 5: from here on it happened."""
    fresh.rename(paths.state)


def settle_directory(paths: Paths) -> None:
    """Step 6: and the disk knows."""
    files.settle_directory(paths.liza)
