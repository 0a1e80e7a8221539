"""All that a store has of one crew's board, to move it to another store. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from liza.board.revisions import RevisionLine, format_record
from liza.model.value_classes import Value
from liza.text.formats import count_noun


class CrewCopy(Value):
    """The text of the board, the committed revisions of its journal, oldest first, the archived entries by task, in
    the order in which they left the board, the texts of the signals by name, and the documents of goals and tasks.
    """

    text: str
    lines: tuple[RevisionLine, ...]
    archived: Mapping[str, str]
    signals: Mapping[str, str]
    pages: Mapping[str, str]

    def describe(self) -> str:
        """Return what it has, in numbers."""
        tasks = count_noun(len(self.archived), "archived task")
        return f"{count_noun(len(self.lines), 'revision')}, {tasks}, {count_noun(len(self.text), 'character')} of board"


class Difference(Value):
    """A part of a copy that is not the same in both: what was expected, and what is there."""

    part: str
    expected: str
    actual: str


def find_difference(expected: CrewCopy, actual: CrewCopy) -> Difference | None:
    """Return the first part that differs, by number and digest; None if both are the same."""
    for part, wanted, present in (
        ("the board", [expected.text], [actual.text]),
        ("the journal", map(_format_line, expected.lines), map(_format_line, actual.lines)),
        ("the archive", sorted(_list_entries(expected.archived)), sorted(_list_entries(actual.archived))),
        ("the documents", sorted(_list_entries(expected.pages)), sorted(_list_entries(actual.pages))),
        ("the signals", sorted(_list_entries(expected.signals)), sorted(_list_entries(actual.signals))),
    ):
        texts = _describe(wanted), _describe(present)
        if texts[0] != texts[1]:
            return Difference(part, *texts)
    return None


def _format_line(line: RevisionLine) -> str:
    return format_record(line).decode("utf-8", "surrogateescape")


def _list_entries(entries: Mapping[str, str]) -> list[str]:
    return [f"{name}\n{text}" for name, text in entries.items()]


def _describe(texts: Iterable[str]) -> str:
    """Return the number of the texts and the begin of their common sha256."""
    digest, count = hashlib.sha256(), 0
    for text in texts:
        digest.update(f"{len(text)}\n{text}\n".encode("utf-8", "surrogateescape"))
        count += 1
    return f"{count} of sha256 {digest.hexdigest()[:12]}"
