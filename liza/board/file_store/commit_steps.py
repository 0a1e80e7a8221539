"""The steps of a commit, one function each. In this order `repair` can complete or undo a commit after any of them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from liza.board import recorded_mark
from liza.board.file_store import revision_journal, write_intent
from liza.board.file_store.write_intent import WriteIntent
from liza.board.revisions import RevisionLine
from liza.model.errors import LizaError
from liza.model.paths import Paths
from liza.system import crash_points, files


def commit(paths: Paths, data: bytes, intent: WriteIntent, line: RevisionLine | None = None) -> None:
    """Write the board ``data``. ``line`` is its revision, None for a heartbeat. Raises WriteFailed."""
    next_board = write_next_board(paths, data)
    if line is not None:
        write_journal(paths, line)
    record_intent(paths, intent)
    rename_board(paths, next_board)
    fsync_directory(paths)


def rotate_journal(paths: Paths, revision: int) -> None:
    """Before a commit: shorten a long journal.

    Tried once in ROTATION_INTERVAL revisions: if nearly all lines have to stay, a try reads the whole journal.
    """
    if revision % revision_journal.ROTATION_INTERVAL == 0 and revision_journal.is_long(paths.journal):
        # A failed rotation is tried again later.
        with suppress(LizaError):
            recorded = recorded_mark.read_mark(paths) or 0
            revision_journal.rotate(paths.journal, paths.tx / "log.next", recorded)


def write_next_board(paths: Paths, data: bytes) -> Path:
    """Step 1: write the new board, with fsync, in a directory that is not watched. Return its path.

    The commit renames it, so as long as it exists, the line of the journal with its sha256 was not committed.
    """
    path = paths.next_board
    files.write_synced(path, data)
    return path


def write_journal(paths: Paths, line: RevisionLine) -> None:
    """Step 2: append the revision to the journal, with fsync."""
    revision_journal.append_record(paths.journal, line)


def record_intent(paths: Paths, intent: WriteIntent) -> None:
    """Step 3: write the digests of the board before and after."""
    write_intent.save_intent(paths.write_intent, intent)


@files.convert_os_errors()
def rename_board(paths: Paths, next_board: Path) -> None:
    """Step 4: rename the new board. This commits the change."""
    next_board.rename(paths.state)
    crash_points.point("renamed", paths.state.name)


@files.convert_os_errors()
def fsync_directory(paths: Paths) -> None:
    """Step 5: fsync the directory, so that the rename survives a power cut."""
    files.fsync_directory(paths.liza)
    crash_points.point("fsynced", paths.state.name)
