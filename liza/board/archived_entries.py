"""The entries of archived tasks as texts: cut out of a board, found in a text, parsed. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise
from typing import Final

import msgspec

from liza.board.text import document
from liza.board.text.document import Document, Part
from liza.board.text.parse import NeedsSlowPath, Unparsable
from liza.board.text.splitter import Piece, PieceKind, entry_indent
from liza.model.errors import Refused
from liza.model.model import FINAL_STATUSES, Task

REPAIR: Final = "liza archive --repair"
INDENT: Final = 2
HEAD: Final = (
    "# Closed tasks that left the board, in the order in which they left. `liza task show ID` shows one of them.\n"
    "# The file may be edited; it is read again then. `liza validate` checks it.\n"
    "tasks:\n"
)
_ENTRY: Final = re.compile(rf"\n {{{INDENT}}}-(?=[ \n])")
_BODY: Final = re.compile(r"^tasks:[ \t]*(?:#.*)?$", re.MULTILINE)
_ID: Final = re.compile(r"^(?:  - | {4})id:[ ]*[\"']?([\w.-]+)", re.MULTILINE)


class ArchivedEntry(msgspec.Struct, frozen=True):
    """An entry of an archive file: its id and its task, or the reason why it cannot be read or does not count."""

    id: str
    task: Task | None
    error: str = ""


class ArchiveFault(msgspec.Struct, frozen=True):
    """Something wrong with the archive: the entry, the value found, the value expected, and the ``next`` command.

    ``field`` is what of the entry is meant.
    """

    entry: str
    actual: str
    expected: str
    next: str
    field: str = "the value"


def movable_texts(board: Document, ids: Iterable[str]) -> dict[str, str]:
    """Return the entries of tasks by id, with their comments, as they are appended to a file.

    Entries that are written in a form that cannot be moved as text are left out. Raises Refused if none can be moved.
    """
    wanted = set(ids)
    parts = [part for part in board.parts if part.section == "tasks" and part.kind is PieceKind.ITEM]
    counts = Counter(part.key for part in parts)
    texts = {part.key: _shifted(part) for part in parts if part.key in wanted and counts[part.key] == 1}
    movable = {task_id: text for task_id, text in texts.items() if text is not None}
    if wanted and not movable:
        raise Refused("the closed tasks are not written as entries that can be moved as text", "liza edit")
    return movable


def _shifted(part: Part) -> str | None:
    """Return the text of an entry with the indentation and the line ends of the archive; None if its value changed."""
    lines = part.text.replace("\r\n", "\n").rstrip("\n").split("\n")
    shift = INDENT - entry_indent(part.text)
    text = "".join(_shift_line(line, shift) + "\n" for line in lines)
    with suppress(NeedsSlowPath, Unparsable):
        if document.parse_piece(Piece(PieceKind.ITEM, part.section, text)).value == part.value:
            return text
    return None


def _shift_line(line: str, shift: int) -> str:
    if not line.strip():
        return line
    return " " * shift + line if shift >= 0 else line.removeprefix(" " * -shift)


def split_text(text: str) -> list[tuple[str, str]]:
    """Return the entries of a file with their ids, each with the comments directly above it. They end the text.

    Raises NeedsSlowPath if the text is not a list of archived tasks.
    """
    body = _BODY.search(text)
    if body is None:
        raise NeedsSlowPath("it has no line `tasks:`")
    lowest = body.end()
    starts = [match.start() + 1 for match in _ENTRY.finditer(text, lowest)]
    between = text[lowest : starts[0] if starts else len(text)]
    if any(line.strip() and not line.lstrip().startswith("#") for line in between.split("\n")):
        raise NeedsSlowPath("it has something other than entries that begin with two spaces and a dash")
    edges = [_comment_start(text, edge, lowest + 1) for edge in starts]
    return [(_find_id(text[first:last]), text[first:last]) for first, last in pairwise([*edges, len(text)])]


def _comment_start(text: str, edge: int, lowest: int) -> int:
    """Return the begin of the comments directly above an entry."""
    while edge > lowest:
        above = text.rfind("\n", 0, edge - 1) + 1
        if above < lowest or not text.startswith(" " * INDENT + "#", above):
            return edge
        edge = above
    return edge


def _find_id(piece: str) -> str:
    """Return the id of an entry; an empty text if it has none."""
    match = _ID.search(piece)
    return match[1] if match else parse_entry("", piece).id


def parse_entry(task_id: str, piece: str) -> ArchivedEntry:
    """Return the entry in ``piece``. One that a person made open again is reported, and does not count."""
    try:
        part = document.parse_piece(Piece(PieceKind.ITEM, "tasks", piece))
    except (NeedsSlowPath, Unparsable) as error:
        return ArchivedEntry(task_id, None, str(error) or "it cannot be parsed")
    task: Task = part.value
    is_closed = task.status in FINAL_STATUSES
    return ArchivedEntry(part.key, task, "" if is_closed else f"its status is {task.status}, which is not final")
