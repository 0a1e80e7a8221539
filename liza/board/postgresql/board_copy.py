"""The board as this process read it last: its rows, and the document that they are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import NamedTuple

from liza.board.postgresql import entry_rows
from liza.board.postgresql.entry_rows import EntryRow, EntryWrite, Name
from liza.board.text import document
from liza.board.text.document import Document
from liza.model.errors import BoardInconsistent
from liza.model.value_classes import Mutable


class DeltaRow(NamedTuple):
    """A row of the table that is newer than the copy. ``body`` None: the entry was deleted."""

    section: str
    name: str
    order: float
    body: str | None
    change: int


class CrewRow(NamedTuple):
    """The numbers of a crew. ``journaled``: its change at the last revision; negative if the next line of the journal
    must have the whole text."""

    revision: int
    change: int
    journaled: int


class BoardCopy(Mutable, eq=False, dict=True):
    """The rows of a crew at one change. A copy is not changed: a newer one replaces it."""

    crew: str
    numbers: CrewRow
    rows: Mapping[Name, EntryRow]
    names: list[Name]
    """The entries in the order of the text."""
    renewed: Mapping[Name, int]
    """The entries that heartbeats changed since the last revision, with the changes."""
    older: Document | None = None
    """A document whose parts need no new parsing."""

    @cached_property
    def text(self) -> str:
        """The text of the board."""
        rows = self.rows
        return "".join([rows[name].body for name in self.names])

    @cached_property
    def document(self) -> Document:
        """The parsed board. Raises BoardUnreadable, BoardTooNew."""
        parsed = document.read_document(self.text, f"the board of crew {self.crew}", previous=self.older)
        self.older = None
        return parsed

    def parse(self) -> None:
        """Parse the board, if it can be read. ``document`` raises why it cannot."""
        with suppress(BoardInconsistent):
            _ = self.document

    @property
    def known_document(self) -> Document | None:
        """The document, if it was parsed; else an older one."""
        parsed: Document | None = vars(self).get("document", self.older)
        return parsed


def read_copy(crew: str, numbers: CrewRow, delta: Iterable[DeltaRow], before: BoardCopy | None) -> BoardCopy:
    """Return the copy with the rows of ``delta``. ``before`` None: these are all rows of the crew."""
    rows = {} if before is None else dict(before.rows)
    renewed = {} if before is None else dict(before.renewed)
    is_reordered = before is None
    for row in delta:
        name, old = (row.section, row.name), rows.get((row.section, row.name))
        if row.body is None:
            rows.pop(name, None)
        else:
            rows[name] = EntryRow(row.order, row.body)
        is_reordered |= (old and old.order) != (None if row.body is None else row.order)
        renewed[name] = row.change
    names = entry_rows.sort_names(rows) if before is None or is_reordered else before.names
    renewed = {name: change for name, change in renewed.items() if change > max(0, numbers.journaled)}
    return BoardCopy(crew, numbers, rows, names, renewed, before.known_document if before is not None else None)


def written_copy(before: BoardCopy, numbers: CrewRow, writes: Iterable[EntryWrite], after: Document) -> BoardCopy:
    """Return the copy after this process wrote ``writes``: the entries of ``after``."""
    rows = dict(before.rows)
    for write in writes:
        if write.body is None:
            rows.pop((write.section, write.name), None)
        else:
            rows[write.section, write.name] = EntryRow(write.order, write.body)
    is_revision = numbers.journaled == numbers.change
    renewed = {} if is_revision else dict(before.renewed) | {(w.section, w.name): numbers.change for w in writes}
    copy = BoardCopy(before.crew, numbers, rows, after.names, renewed)
    copy.document = after
    copy.text = after.text
    return copy
