"""The revisions of a crew, read from the rows of its journal, newest first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from liza.board.postgresql.links import Links
from liza.board.revisions import RevisionLine, RevisionRecord
from liza.model.value_classes import decodable
from liza.text.formats import format_time

_HEADS: Final = """
SELECT revision, time, head FROM journal WHERE crew = %(crew)s AND revision < %(below)s
ORDER BY revision DESC LIMIT %(limit)s"""
_LINES: Final = """
SELECT revision, time, head, entries, text FROM journal WHERE crew = %(crew)s AND revision < %(below)s
ORDER BY revision DESC LIMIT %(limit)s"""
_HEADS_AT_ONCE: Final = 256
_LINES_AT_ONCE: Final = 32
_NEWEST: Final = (1 << 63) - 1


def iter_records(links: Links) -> Iterator[RevisionRecord]:
    """Yield the heads of the revisions."""
    for _, time, head in _iter_rows(links, _HEADS, _HEADS_AT_ONCE):
        yield msgspec.convert({**head, "time": format_time(time)}, decodable(RevisionRecord))


def iter_lines(links: Links) -> Iterator[RevisionLine]:
    """Yield the revisions with their changes."""
    for _, time, head, entries, text in _iter_rows(links, _LINES, _LINES_AT_ONCE):
        line = {**head, "time": format_time(time), "entries": entries or (), "text": text}
        yield msgspec.convert(line, decodable(RevisionLine))


def _iter_rows(links: Links, sql: str, limit: int) -> Iterator[tuple[Any, ...]]:
    below = _NEWEST
    while rows := links.ask_much(sql, below=below, limit=limit):
        yield from rows
        below = rows[-1][0]
