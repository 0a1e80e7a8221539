"""Split the text of a board into entries, by the starts of lines only.

The result is a guess that is always checked: each piece must parse alone as exactly one entry. Unusual text raises
NeedsSlowPath; then the parser reads the whole file.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cache
from itertools import pairwise
from typing import Final

from liza.board.text.parse import NeedsSlowPath
from liza.model.value_classes import Value

LIST_SECTIONS: Final = frozenset(("tasks", "discovered", "anomalies", "human_notes", "spec_changes"))
TABLE_SECTIONS: Final = frozenset(("agents", "handoff"))

_COLUMN_0: Final = re.compile(r"^[^\s#].*", re.MULTILINE)
_KEY: Final = re.compile(r"(?:\"([\w-]+)\"|'([\w-]+)'|([A-Za-z_][\w-]*))[ \t]*:(?=\s|$)")
_MARKER: Final = re.compile(r"---[ \t]*(?:#.*)?\r?")
_CONTENT: Final = re.compile(r"^[ \t]+[^\s#]", re.MULTILINE)
_ODD_BREAK: Final = re.compile(r"[\x85\u2028\u2029]|\r(?!\n)")
_EMPTY_REST: Final = re.compile(r"[ \t]*(?:#.*)?\r?")
_FIRST_CONTENT: Final = re.compile(r"^( *)([^\s#].*)", re.MULTILINE)


class PieceKind(StrEnum):
    """Kind of a slice of the file."""

    WHOLE = "whole"
    """The whole file, which cannot be split into entries that parse alone."""
    TEXT = "text"
    """Text without a value."""
    SINGLE = "single"
    """A whole section."""
    ITEM = "item"
    """An entry of a list."""
    PAIR = "pair"
    """An entry of a mapping."""


class Piece(Value):
    """A slice of the file."""

    kind: PieceKind
    section: str
    text: str


@cache
def _entry_start(kind: PieceKind, indent: int) -> re.Pattern[str]:
    start = "-(?=[ \\r\\n]|$)" if kind is PieceKind.ITEM else "[^\\s#]"
    return re.compile(f"^ {{{indent}}}{start}", re.MULTILINE)


def split_board(text: str) -> list[Piece]:
    """Return the pieces of a board; joined they are the text. Raises NeedsSlowPath."""
    _check_breaks(text)
    starts: list[tuple[int, str, int]] = []
    for match in _COLUMN_0.finditer(text):
        key = _KEY.match(text, match.start())
        if key:
            starts.append((match.start(), key[1] or key[2] or key[3], key.end()))
        elif not (_is_item(match.group()) if starts else _is_head(match.group())):
            raise NeedsSlowPath("a line at the margin that is no section")
    names = [name for _, name, _ in starts]
    if not starts or len(set(names)) != len(names):
        raise NeedsSlowPath("no sections, or one twice")
    edges = [find_comment_start(text, start, 0) for start, _, _ in starts] + [len(text)]
    if _CONTENT.search(text, 0, edges[0]):
        raise NeedsSlowPath("something above the first section that is no comment")
    pieces = [Piece(PieceKind.TEXT, "", text[: edges[0]])] if edges[0] else []
    for (start, name, value), edge, end in zip(starts, edges, edges[1:], strict=False):
        pieces += _split_section(name, text[edge:end], start - edge, value - edge)
    return pieces


def _check_breaks(text: str) -> None:
    """Raise NeedsSlowPath for line ends other than LF and CRLF: the YAML parsers disagree about these."""
    if (not text.isascii() or "\r" in text) and _ODD_BREAK.search(text):
        raise NeedsSlowPath("a line that ends in another way than others")


def _is_item(line: str) -> bool:
    return line.startswith("- ") or line.rstrip("\r") == "-"


def _is_head(line: str) -> bool:
    return bool(_MARKER.fullmatch(line)) or line == "\ufeff"


def find_comment_start(text: str, start: int, indent: int) -> int:
    """Return the offset of the topmost comment directly above ``start`` that is indented at most ``indent``.

    Return ``start`` if there is no comment above it.
    """
    edge = start
    while start > 0:
        above = text.rfind("\n", 0, start - 1) + 1
        line = text[above : start - 1]
        bare = line.lstrip(" ")
        if bare.startswith("#") and len(line) - len(bare) <= indent:
            edge = above
        elif bare.strip():
            break
        start = above
    return edge


def _split_section(name: str, text: str, start: int, value: int) -> list[Piece]:
    """Return a section in one piece, or its head and its entries."""
    kind = PieceKind.ITEM if name in LIST_SECTIONS else PieceKind.PAIR if name in TABLE_SECTIONS else PieceKind.SINGLE
    end_of_line = text.find("\n", value)
    if kind is PieceKind.SINGLE or end_of_line < 0 or not _EMPTY_REST.fullmatch(text, value, end_of_line):
        return [Piece(PieceKind.SINGLE, name, text)]
    first = _FIRST_CONTENT.search(text, end_of_line + 1)
    if first is None:
        return [Piece(PieceKind.SINGLE, name, text)]
    indent = len(first[1])
    fits = _is_item(first[2]) if kind is PieceKind.ITEM else indent > 0 and not _is_item(first[2])
    if not fits:
        return [Piece(PieceKind.SINGLE, name, text)]
    return [
        Piece(PieceKind.TEXT, name, text[: first.start()]),
        *split_entries(kind, name, text[first.start() :], indent),
    ]


def split_entries(kind: PieceKind, section: str, text: str, indent: int) -> list[Piece]:
    """Return the entries of a part of a section that begins with an entry. Raises NeedsSlowPath."""
    _check_breaks(text)
    starts = [match.start() for match in _entry_start(kind, indent).finditer(text)]
    edges = [0, *(find_comment_start(text, start, indent) for start in starts[1:]), len(text)]
    return [Piece(kind, section, text[a:b]) for a, b in pairwise(edges)]


def entry_indent(text: str) -> int:
    """Return the indentation of an entry, in spaces."""
    first = _FIRST_CONTENT.search(text)
    return len(first[1]) if first else 0


def split_range(like: Piece, text: str, is_first: bool) -> list[Piece]:
    """Return the pieces of the text between two unchanged pieces, one of which was ``like``.

    ``is_first``: they are the first entries of their section, whose head is above. Raises NeedsSlowPath if the whole
    board may be split otherwise: if the range has another section, or text that belongs to a piece beside it.
    """
    indent = entry_indent(like.text)
    if like.kind is PieceKind.TEXT or not starts_with_entry(like.kind, text, indent, is_first):
        raise NeedsSlowPath("a range whose beginning belongs to the text above it")
    if find_comment_start(text, len(text), indent) != len(text):
        raise NeedsSlowPath("a range that ends with comments of a following entry")
    if like.kind is not PieceKind.SINGLE:
        if not all(_is_item(match.group()) for match in _COLUMN_0.finditer(text)):
            raise NeedsSlowPath("a line at the margin between entries")
        return split_entries(like.kind, like.section, text, indent)
    pieces = split_board(text)
    if [piece.section for piece in pieces] != [like.section]:
        raise NeedsSlowPath("a range that is more than one section")
    return pieces


def starts_with_entry(kind: PieceKind, text: str, indent: int, is_first: bool) -> bool:
    """Return whether the text begins with an entry, or with comments directly above one.

    Comments above the first entry of a section belong to its head.
    """
    for line in text.split("\n", 64):
        bare = line.lstrip(" ")
        if not bare.startswith("#"):
            return bool(_entry_start(kind, indent).match(line))
        if is_first or len(line) - len(bare) > indent:
            return False
    return False
