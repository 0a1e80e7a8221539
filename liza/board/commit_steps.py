"""The steps of a commit, one function each. In this order `repair` can complete or undo a commit after any of them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from liza.board import revision_journal, write_intent
from liza.board.revision_journal import RevisionRecord
from liza.board.spool import PREVIOUS_NAME, Spool, SpoolItem
from liza.board.write_intent import WriteIntent
from liza.model.errors import LizaError
from liza.model.paths import Paths
from liza.system import crash_points, files


class BoardPaths:
    """The paths that a commit uses, built once."""

    def __init__(self, paths: Paths) -> None:
        self.liza, self.state, self.journal = paths.liza, paths.state, paths.journal
        self.intent, self.tx, self.next_board = paths.write_intent, paths.tx, paths.tx / "next"
        self.archive_intent = paths.archive_intent


def write_journal(paths: BoardPaths, record: RevisionRecord) -> None:
    """Step 1: append the revision to the journal, with fsync."""
    revision_journal.append_record(paths.journal, record)


def rotate_journal(paths: BoardPaths, spool: Spool, revision: int) -> None:
    """Before step 1: if the journal is long, continue it in a new file. The records of what is spooled stay in it.

    Tried once in ROTATION_INTERVAL revisions: if nearly all records have to stay, a try reads the whole journal.
    """
    if revision % revision_journal.ROTATION_INTERVAL == 0 and revision_journal.is_long(paths.journal):
        # A failed rotation is tried again later.
        with suppress(LizaError):
            revision_journal.rotate(paths.journal, paths.tx / "log.next", spool.lowest_revision() or revision)


def record_intent(paths: BoardPaths, intent: WriteIntent) -> None:
    """Step 2: write the digests of the board before and after."""
    write_intent.save_intent(paths.intent, msgspec.structs.replace(intent, stood=write_intent.file_stamp(paths.state)))


def write_spool(spool: Spool, item: SpoolItem) -> None:
    """Step 3: write the changed entries, from which the history is made."""
    spool.add_item(item)


def write_next_board(paths: BoardPaths, data: bytes) -> Path:
    """Step 4: write the new board, with fsync, in a directory that is not watched. Return its path."""
    path = paths.next_board
    files.write_synced(path, data)
    return path


@files.convert_os_errors()
def rename_board(paths: BoardPaths, next_board: Path) -> None:
    """Step 5: rename the new board. This commits the change. A link to the old board is kept until the next commit."""
    with suppress(OSError):  # Optional: without it a destroyed board is restored from spool and history.
        _link_previous(paths)
    next_board.rename(paths.state)
    crash_points.point("renamed", paths.state.name)


def _link_previous(paths: BoardPaths) -> None:
    """Link the board that is about to be replaced, so that it can be restored even if the spool is lost."""
    link = paths.tx / "previous.new"
    link.unlink(missing_ok=True)
    os.link(paths.state, link)
    link.rename(paths.tx / PREVIOUS_NAME)


@files.convert_os_errors()
def fsync_directory(paths: BoardPaths) -> None:
    """Step 6: fsync the directory, so that the rename survives a power cut."""
    files.fsync_directory(paths.liza)
    crash_points.point("fsynced", paths.state.name)
