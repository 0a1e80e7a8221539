"""The steps of a commit, one function each, in the order in which a crash can be settled after any of them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from liza.board import revision_journal, write_intent
from liza.board.revision_journal import RevisionRecord
from liza.board.spool import PREVIOUS_NAME, Spool, SpoolItem
from liza.board.write_intent import WriteIntent
from liza.rules.paths import Paths
from liza.system import crash_points, files


class BoardPaths:
    """The paths of a commit, put together once."""

    def __init__(self, paths: Paths) -> None:
        self.liza, self.state, self.journal = paths.liza, paths.state, paths.journal
        self.intent, self.tx, self.next_board = paths.seal, paths.tx, paths.tx / "next"


def write_journal(places: BoardPaths, record: RevisionRecord) -> None:
    """Step 1: what is about to happen, on the disk."""
    revision_journal.append_record(places.journal, record)


def record_intent(places: BoardPaths, fresh: WriteIntent) -> None:
    """Step 2: the bytes before and after."""
    write_intent.save_intent(places.intent, msgspec.structs.replace(fresh, stood=write_intent.file_stamp(places.state)))


def write_spool(spool: Spool, item: SpoolItem) -> None:
    """Step 3: what changed, for history."""
    spool.add_item(item)


def write_next_board(places: BoardPaths, data: bytes) -> Path:
    """Step 4: the board to come, on the disk, in a directory that nobody watches."""
    fresh = places.next_board
    files.write_synced(fresh, data)
    return fresh


@files.convert_os_errors()
def rename_board(places: BoardPaths, fresh: Path) -> None:
    """Step 5: from here on it happened. The board that it replaces stays beside it until the next change."""
    with suppress(OSError):  # A spare: without it a board that is destroyed comes back from the spool and the history.
        _link_previous(places)
    fresh.rename(places.state)
    crash_points.point("renamed", places.state.name)


def _link_previous(places: BoardPaths) -> None:
    """A second name for the board that is about to be replaced: whatever becomes of the spool, it can be read."""
    aside = places.tx / "previous.new"
    aside.unlink(missing_ok=True)
    os.link(places.state, aside)
    aside.rename(places.tx / PREVIOUS_NAME)


@files.convert_os_errors()
def fsync_directory(places: BoardPaths) -> None:
    """Step 6: and the disk knows."""
    files.fsync_directory(places.liza)
    crash_points.point("settled", places.state.name)
