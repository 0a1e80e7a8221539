"""The mark in `.liza`: the newest revision that the history in git has."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import Final

from liza.board.revisions import RevisionRecord
from liza.model.errors import NotRegularFile
from liza.model.paths import Paths
from liza.system import files, untrusted_files

_MARK_SIZE: Final = 64  # bytes


def read_mark(paths: Paths) -> int | None:
    """Return the newest revision that the history has; None if the mark is missing or damaged."""
    try:
        return int(untrusted_files.read(paths.recorded_mark, _MARK_SIZE))
    except (OSError, NotRegularFile, ValueError):
        return None


def write_mark(paths: Paths, revision: int) -> None:
    """Remember that the history has all revisions up to ``revision``. Raises WriteFailed."""
    files.replace_unsynced(paths.recorded_mark, b"%d\n" % revision)


def list_waiting(paths: Paths, newest_first: Iterable[RevisionRecord]) -> list[RevisionRecord]:
    """Return the revisions after the mark, ascending."""
    mark = read_mark(paths) or 0
    return list(takewhile(lambda record: record.revision > mark, newest_first))[::-1]
