"""Write entries of archived tasks again that the history has and the files lack. Damaged files become copies."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import count
from pathlib import Path

from liza.board.archived_entries import HEAD, split_text
from liza.board.contract import RestoredArchive
from liza.board.file_store import archive_files
from liza.board.text.parse import NeedsSlowPath
from liza.model.errors import BoardInconsistent
from liza.model.paths import Paths
from liza.system import crash_points, files


def restore_entries(
    paths: Paths, recorded: Mapping[str, str], on_board: Collection[str], now: datetime
) -> RestoredArchive:
    """Write the entries of ``recorded``, files by name, that are nowhere now. An unreadable file becomes a copy.

    The caller holds the lock of the board. Raises BoardInconsistent, WriteFailed.
    """
    copies = [
        _rename_damaged(paths, name, now)
        for name in archive_files.list_names(paths)
        if _read_if_readable(paths, name) is None
    ]
    present_ids = {*archive_files.list_ids(paths), *archive_files.find_commented(paths)}
    names = list[str]()
    for name, text in recorded.items():
        lost = {task_id: piece for task_id, piece in split_text(text) if task_id not in present_ids | {*on_board}}
        if lost:
            present = _read_if_readable(paths, name) or HEAD
            whole = present if present.endswith("\n") else present + "\n"
            archive_files.write_file(paths, name, whole + "".join(lost.values()))
            names.append(name)
            present_ids |= lost.keys()
    return RestoredArchive(tuple(names), tuple(copies), frozenset(present_ids))


def _read_if_readable(paths: Paths, name: str) -> str | None:
    """Return the text of an archive file; None if it is missing or not a list of archived tasks."""
    with suppress(BoardInconsistent, NeedsSlowPath):
        text = archive_files.read_text(paths, name)
        split_text(text)
        return text
    return None


def _rename_damaged(paths: Paths, name: str, now: datetime) -> Path:
    """Rename an unreadable file, and return its new path. Raises WriteFailed."""
    path, stamp = paths.archive / name, f"{now:%Y%m%dT%H%M%S}"
    copies = (path.with_name(f"{name}.damaged-{stamp}{f'.{number}' if number else ''}") for number in count())
    copy = next(free for free in copies if not os.path.lexists(free))
    with files.convert_os_errors():
        path.rename(copy)
    crash_points.point("renamed", f"{name}.damaged")
    return copy
