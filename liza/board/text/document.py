"""The board as text and as values: a list of text slices, each with its parsed value."""

from __future__ import annotations

from functools import cached_property
from itertools import accumulate
from typing import Any, Final

import msgspec

from liza.board.text import parse, splitter
from liza.board.text.parse import NeedsSlowPath, Unparsable
from liza.board.text.splitter import LIST_SECTIONS, TABLE_SECTIONS, Piece, PieceKind
from liza.board.text.values import find_struct, from_plain, normalize_scalar, struct_fields
from liza.board.text.yaml_lines import Style
from liza.config.rules import settings
from liza.model.errors import BoardTooNew, BoardUnreadable
from liza.model.model import SCHEMA_VERSION, State
from liza.model.type_errors import find_problem
from liza.model.value_classes import Mutable
from liza.system import installation

RESTORE_COMMAND: Final = "liza restore --last-good"
BOARD_NAME: Final = ".liza/state.yaml"
SECTIONS: Final[dict[str, Any]] = struct_fields(State)
_MAX_SEARCH: Final = 1 << 16  # characters behind a changed part in which the next unchanged one is searched
_BLOCK: Final = 32
"""Parts that are compared at once: most of a large board is unchanged."""
_MIN_NEIGHBOURS: Final = 16
_NEIGHBOURS: Final = 1 / 16
"""Parts in a row that may have changed, at least 16, as a part of all. A search takes 4 µs, splitting the board again
6 µs for each part. Twenty agents on neighbouring tasks change more than 16 between two reads of a busy crew."""


class Part(Mutable, eq=False):
    """A slice of the text with its value. ``key`` identifies an entry in its section."""

    kind: PieceKind
    section: str
    text: str
    key: str = ""
    value: Any = None


class Document(Mutable, eq=False, dict=True):
    """A parsed board: ``parts`` joined are ``text``; ``state`` is its value.

    If the text cannot be split into entries that parse alone, there is one part of the kind WHOLE.
    """

    text: str
    parts: list[Part]
    state: State

    @cached_property
    def names(self) -> list[tuple[str, str]]:
        """Section and key of each part, unique: parts without a key, or with one used before, get a number."""
        names: list[tuple[str, str]] = []
        counts: dict[tuple[str, str], int] = {}
        for part in self.parts:
            name = part.section, part.key
            counts[name] = count = counts.get(name, 0) + 1
            names.append(name if count == 1 and part.key else (part.section, f"{part.key}#{part.kind}{count}"))
        return names

    def copy_names_if_same(self, other: Document) -> bool:
        """Return whether ``other`` has the same entries in the same order; if so, copy its names."""
        if len(self.parts) != len(other.parts):
            return False
        changed = [(a, b) for a, b in zip(self.parts, other.parts, strict=True) if a is not b]
        same = all((a.kind, a.section, a.key) == (b.kind, b.section, b.key) for a, b in changed)
        if same:
            self.names = other.names
        return same

    @cached_property
    def offsets(self) -> list[int]:
        """Where each part begins in the text, and the end of the text."""
        return list(accumulate([len(part.text) for part in self.parts], initial=0))

    @property
    def is_whole(self) -> bool:
        """Whether the text could not be split."""
        return self.parts[0].kind is PieceKind.WHOLE

    @property
    def style(self) -> Style:
        """The style of the file."""
        end = self.text.find("\n")
        newline = "\r\n" if end > 0 and self.text[end - 1] == "\r" else "\n"
        entry = next((part for part in self.parts if part.kind is PieceKind.ITEM), None)
        return Style(newline, min(splitter.entry_indent(entry.text), 2) if entry else 2)


def load_state(text: str, name: str = BOARD_NAME) -> State:
    """Return the state in a text of a board. Raises BoardUnreadable, BoardTooNew."""
    return read_document(text, name).state


def read_document(text: str, name: str = BOARD_NAME, previous: Document | None = None) -> Document:
    """Parse a text; parts that ``previous`` has are not parsed again. Raises BoardUnreadable, BoardTooNew."""
    if previous is not None and previous.text == text:
        return previous
    try:
        if previous is not None and not previous.is_whole and (parts := _reuse_parts(previous, text)) is not None:
            parsed = assemble(text, parts, name)
            parsed.copy_names_if_same(previous)
            return parsed
        memory = {(part.section, part.text): part for part in previous.parts} if previous is not None else {}
        pieces = splitter.split_board(text)
        _refuse_newer(pieces, name)
        return assemble(text, [parse_piece(piece, memory) for piece in pieces], name)
    except (NeedsSlowPath, Unparsable):
        return read_whole(text, name)


def is_split_alike(before: Document, changed: Document) -> bool:
    """Return whether ``changed``, which has the entries of ``before``, is split as a reader will split its text.

    False if that is not certain.
    """
    above = None
    try:
        for was, now in zip(before.parts, changed.parts, strict=True):
            if was is not now and splitter.split_range(_piece(was), now.text, _is_head(above)) != [_piece(now)]:
                return False
            above = now
    except NeedsSlowPath:
        return False
    return True


def resplit(assembled: Document) -> Document:
    """Split the text of an assembled document again, as a reader will split it. Raises NeedsSlowPath, Unparsable."""
    memory = {(part.section, part.text): part for part in assembled.parts}
    parts = [parse_piece(piece, memory) for piece in splitter.split_board(assembled.text)]
    again = assemble(assembled.text, parts)
    if again.state != assembled.state:
        raise NeedsSlowPath("the text splits into other parts than it was assembled from")
    return again


def parse_piece(piece: Piece, memory: dict[tuple[str, str], Part] | None = None) -> Part:
    """Return the part of a piece, from ``memory`` or by parsing. Raises NeedsSlowPath, Unparsable."""
    if memory and (cached := memory.get((piece.section, piece.text))) is not None and cached.kind == piece.kind:
        return cached
    part = Part(piece.kind, piece.section, piece.text)
    if piece.kind is PieceKind.TEXT:
        _check_empty(piece)
        return part
    plain = parse.parse_part(piece.text, piece.section if piece.kind is not PieceKind.SINGLE else "")
    try:
        if piece.kind is PieceKind.ITEM:
            part.key, part.value = _parse_item(piece, plain)
        elif piece.kind is PieceKind.PAIR:
            part.key, part.value = _parse_pair(piece, plain)
        else:
            part.value = _parse_section(piece, plain)
    except msgspec.ValidationError as error:
        raise NeedsSlowPath(str(error)) from None
    return part


def _check_empty(piece: Piece) -> None:
    """Raise NeedsSlowPath if a head has a value; it may have comments, a marker and the name of a section."""
    if piece.section and parse.parse_part(piece.text, "") not in ({}, None):
        raise NeedsSlowPath("a section's head has a value")


def _parse_item(piece: Piece, plain: Any) -> tuple[str, Any]:
    if not isinstance(plain, list) or len(plain) != 1 or not isinstance(plain[0], dict):
        raise NeedsSlowPath("an entry that does not stand alone")
    value = from_plain(plain[0], find_struct(SECTIONS[piece.section]))
    return getattr(value, "id", ""), value


def _parse_pair(piece: Piece, plain: Any) -> tuple[str, Any]:
    if not isinstance(plain, dict) or len(plain) != 1:
        raise NeedsSlowPath("an entry that does not stand alone")
    [(key, value)] = plain.items()
    return normalize_scalar("agent", key), from_plain(value, find_struct(SECTIONS[piece.section]))


def _parse_section(piece: Piece, plain: Any) -> Any:
    if not isinstance(plain, dict) or not set(plain) <= {piece.section}:
        raise NeedsSlowPath("a section that does not stand alone")
    if piece.section not in SECTIONS or piece.section not in plain:
        return None
    return from_plain(_normalize_agents(piece.section, plain[piece.section]), SECTIONS[piece.section])


def _normalize_agents(section: str, plain: Any) -> Any:
    if section in TABLE_SECTIONS and isinstance(plain, dict):
        return {normalize_scalar("agent", key): value for key, value in plain.items()}
    return plain


def _reuse_parts(previous: Document, text: str) -> list[Part] | None:
    """Return the parts of a text that differs from that of ``previous`` in few places; None if that is not certain.

    They are the parts that the text has when it is split anew.
    """
    parts, offsets, offset, i = previous.parts, previous.offsets, 0, 0
    reused: list[Part] = []
    while i < len(parts):
        part, block = parts[i], i + _BLOCK
        if block < len(parts) and text.startswith(previous.text[offsets[i] : offsets[block]], offset):
            reused += parts[i:block]
            offset += offsets[block] - offsets[i]
            i = block
            continue
        if text.startswith(part.text, offset):
            reused.append(part)
            offset += len(part.text)
            i += 1
            continue
        beyond, edge = _find_unchanged(parts, i, text, offset)
        if edge < 0 or any((other.kind, other.section) != (part.kind, part.section) for other in parts[i:beyond]):
            return None
        is_first = _is_head(reused[-1] if reused else None)
        if not splitter.starts_with_entry(part.kind, text[offset:edge], splitter.entry_indent(part.text), is_first):
            if not reused or (reused[-1].kind, reused[-1].section) != (part.kind, part.section):
                return None
            offset -= len(reused.pop().text)
        parsed = _parse_range(parts[i:beyond], text[offset:edge], reused[-1] if reused else None)
        if parsed is None:
            return None
        reused += parsed
        offset, i = edge, beyond
    return reused if offset == len(text) else None


def _find_unchanged(parts: list[Part], i: int, text: str, offset: int) -> tuple[int, int]:
    """Return index and offset of the next unchanged part; offset -1 if none of the next ones is found."""
    limit = i + 1 + max(_MIN_NEIGHBOURS, int(len(parts) * _NEIGHBOURS))
    for beyond in range(i + 1, min(limit, len(parts))):
        edge = text.find(parts[beyond].text, offset, offset + len(parts[i].text) + _MAX_SEARCH)
        if edge >= 0 and (edge == 0 or text[edge - 1] == "\n"):
            return beyond, edge
    return (len(parts), len(text)) if limit > len(parts) else (i, -1)


def _is_head(part: Part | None) -> bool:
    """Return whether the part is the head of a section, so that the next one is its first entry."""
    return part is not None and part.kind is PieceKind.TEXT and bool(part.section)


def _parse_range(gone: list[Part], text: str, above: Part | None) -> list[Part] | None:
    """Return the parts of a changed range, whose parts were ``gone``; None if it is not certain."""
    try:
        pieces = splitter.split_range(_piece(gone[0]), text, _is_head(above))
        memory = {(other.section, other.text): other for other in gone}
        return [parse_piece(piece, memory) for piece in pieces]
    except (NeedsSlowPath, Unparsable):
        return None


def _piece(part: Part) -> Piece:
    return Piece(part.kind, part.section, part.text)


def assemble(text: str, parts: list[Part], name: str = BOARD_NAME) -> Document:
    """Return the document of parsed parts.

    Raises BoardUnreadable if version, revision or goal is missing, BoardTooNew, NeedsSlowPath if a key occurs twice.
    """
    values: dict[str, Any] = {}
    section, items = "", []
    for part in parts:
        if part.kind is PieceKind.ITEM:
            if part.section != section:
                section, items = part.section, values.setdefault(part.section, [])
            items.append(part.value)
        elif part.kind is PieceKind.PAIR:
            table = values.setdefault(part.section, {})
            if part.key in table:
                raise NeedsSlowPath("an entry that occurs twice")
            table[part.key] = part.value
        elif part.value is not None:
            values[part.section] = part.value
    for section in LIST_SECTIONS & values.keys():
        values[section] = tuple(values[section])
    _require_sections(values, name)
    return Document(text, parts, State(**values))


def _require_sections(values: dict[str, Any], name: str) -> None:
    missing = [section for section in ("version", "revision", "goal") if section not in values]
    if missing:
        raise BoardUnreadable(f"{name} has no {' and no '.join(missing)}", RESTORE_COMMAND)
    if values["version"] > SCHEMA_VERSION:
        raise _too_new_error(values["version"], name)


def _too_new_error(version: object, name: str) -> BoardTooNew:
    message = f"{name} has version {version}; this Liza knows versions up to {SCHEMA_VERSION}"
    return BoardTooNew(message, installation.upgrade_command())


def _refuse_newer(pieces: list[Piece], name: str) -> None:
    """Raise BoardTooNew before other parts are parsed, since a newer board may have values that fail to parse here."""
    for piece in pieces:
        if piece.section == "version" and isinstance(value := parse_piece(piece).value, int) and value > SCHEMA_VERSION:
            raise _too_new_error(value, name)


def read_whole(text: str, name: str = BOARD_NAME) -> Document:
    """Parse a text as one part, without splitting it. Raises BoardUnreadable, BoardTooNew."""
    text = parse.join_surrogates(text)
    try:
        plain = parse.parse_text(text)
    except Unparsable as error:
        raise BoardUnreadable(f"{name}:{error.line}:{error.column}: {error.reason}", RESTORE_COMMAND) from None
    if not isinstance(plain, dict):
        raise BoardUnreadable(f"{name} is {'empty' if plain is None else 'not a mapping'}", RESTORE_COMMAND)
    version = plain.get("version", "")
    if isinstance(version, str) and version.isdecimal() and int(version) > SCHEMA_VERSION:
        raise _too_new_error(version, name)
    _require_sections({key: 0 if key == "version" else value for key, value in plain.items()}, name)
    try:
        state = from_plain({key: _normalize_agents(key, value) for key, value in plain.items()}, State)
    except msgspec.ValidationError as error:
        problem = find_problem(error, State)
        located = parse.locate_error(text, str(error))
        message = f"{located} {problem.path} is {problem.actual}, wanted {problem.expected}"
        raise BoardUnreadable(f"{name}:{message}", RESTORE_COMMAND) from None
    return Document(text, [Part(PieceKind.WHOLE, "", text, value=state)], state)


def _section_text(board: Document | str, section: str) -> str:
    """Return the text of one section; the whole text if it cannot be split."""
    if isinstance(board, Document):
        parts = [part.text for part in board.parts if part.section == section]
        return board.text if board.is_whole else "".join(parts)
    try:
        return next((piece.text for piece in splitter.split_board(board) if piece.section == section), "")
    except NeedsSlowPath:
        return board


def find_unknown_config(board: Document | str) -> tuple[str, ...]:
    """Return the keys of ``config`` in a board or its text that are no setting. Raises BoardUnreadable."""
    try:
        plain = parse.parse_text(_section_text(board, "config"))
    except Unparsable as error:
        raise BoardUnreadable(f"{BOARD_NAME}:{error.line}:{error.column}: {error.reason}", RESTORE_COMMAND) from None
    config = plain.get("config") if isinstance(plain, dict) else None
    return settings.unknown_keys(config) if isinstance(config, dict) else ()
