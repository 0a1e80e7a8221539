"""The board as text and as values at once: a row of slices, each remembered with what it means."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import msgspec

from liza.board.text import parse, splitter
from liza.board.text.parse import NeedsSlowPath, Unparsable
from liza.board.text.splitter import LIST_SECTIONS, TABLE_SECTIONS, Piece
from liza.board.text.values import describe_error, find_struct, from_plain, normalize_scalar, struct_fields
from liza.board.text.yaml_lines import Style
from liza.rules import settings
from liza.rules.errors import BoardTooNew, BoardUnreadable
from liza.rules.model import SCHEMA_VERSION, State

RESTORE_COMMAND: Final = "liza restore --last-good"
REPAIR_HINT: Final = f"liza edit, or: {RESTORE_COMMAND}"
BOARD_NAME: Final = ".liza/state.yaml"
SECTIONS: Final[dict[str, Any]] = struct_fields(State)
_MAX_SEARCH: Final = 1 << 16


@dataclass(eq=False, slots=True)
class Part:
    """A slice of the text with its meaning. ``key`` names an entry within its section."""

    kind: str
    section: str
    text: str
    key: str = ""
    value: Any = None


@dataclass(eq=False)
class Document:
    """A board that was read: ``parts`` joined are ``text``; ``state`` is what they mean.

    Where the text does not come apart into entries that each stand alone, there is one part of the kind ``whole``.
    """

    text: str
    parts: list[Part]
    state: State

    @cached_property
    def names(self) -> list[tuple[str, str]]:
        """Section and key of each part, every pair once: entries without an id of their own get their place."""
        made: list[tuple[str, str]] = []
        counts: dict[tuple[str, str], int] = {}
        for part in self.parts:
            name = part.section, part.key
            counts[name] = count = counts.get(name, 0) + 1
            made.append(name if count == 1 and part.key else (part.section, f"{part.key}#{part.kind}{count}"))
        return made

    def copy_names_if_same(self, other: Document) -> bool:
        """Whether the other has the same entries in the same order; what it knows of their names is taken over."""
        same = len(self.parts) == len(other.parts) and all(
            a is b or (a.kind, a.section, a.key) == (b.kind, b.section, b.key)
            for a, b in zip(self.parts, other.parts, strict=True)
        )
        if same:
            self.names = other.names
        return same

    @property
    def is_whole(self) -> bool:
        """Whether the text could not be taken apart."""
        return self.parts[0].kind == "whole"

    @property
    def style(self) -> Style:
        """How the file is typed."""
        end = self.text.find("\n")
        newline = "\r\n" if end > 0 and self.text[end - 1] == "\r" else "\n"
        entry = next((part for part in self.parts if part.kind == "item"), None)
        return Style(newline, min(splitter.entry_indent(entry.text), 2) if entry else 2)


def load_state(text: str, name: str = BOARD_NAME) -> State:
    """What a board's text means. Raises BoardUnreadable, BoardTooNew."""
    return read_document(text, name).state


def read_document(text: str, name: str = BOARD_NAME, known: Document | None = None) -> Document:
    """The document of a text; parts that ``known`` has are not parsed again. Raises BoardUnreadable, BoardTooNew."""
    if known is not None and known.text == text:
        return known
    try:
        if known is not None and not known.is_whole and (parts := _reuse_parts(known, text)) is not None:
            made = assemble(text, parts, name)
            made.copy_names_if_same(known)
            return made
        memory = {(part.section, part.text): part for part in known.parts} if known is not None else {}
        pieces = splitter.split_board(text)
        _refuse_newer(pieces, name)
        return assemble(text, [parse_piece(piece, memory) for piece in pieces], name)
    except (NeedsSlowPath, Unparsable):
        return read_whole(text, name)


def resplit(made: Document) -> Document:
    """A document that was put together, split as whoever reads it will split it. Raises Doubt, Unparsable."""
    memory = {(part.section, part.text): part for part in made.parts}
    parts = [parse_piece(piece, memory) for piece in splitter.split_board(made.text)]
    again = assemble(made.text, parts)
    if again.state != made.state:
        raise NeedsSlowPath("the text does not come apart as it was put together")
    return again


def parse_piece(piece: Piece, memory: dict[tuple[str, str], Part] | None = None) -> Part:
    """The part of a piece, from memory or from the parser. Raises Doubt, Unparsable."""
    if memory and (found := memory.get((piece.section, piece.text))) is not None and found.kind == piece.kind:
        return found
    made = Part(piece.kind, piece.section, piece.text)
    if piece.kind == "text":
        _check_empty(piece)
        return made
    plain = parse.parse_part(piece.text, piece.section if piece.kind != "single" else "")
    try:
        if piece.kind == "item":
            made.key, made.value = _parse_item(piece, plain)
        elif piece.kind == "pair":
            made.key, made.value = _parse_pair(piece, plain)
        else:
            made.value = _parse_section(piece, plain)
    except msgspec.ValidationError as error:
        raise NeedsSlowPath(str(error)) from None
    return made


def _check_empty(piece: Piece) -> None:
    """A head holds no value: comments, a marker, a section's name."""
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
    [(key, inside)] = plain.items()
    return normalize_scalar("agent", key), from_plain(inside, find_struct(SECTIONS[piece.section]))


def _parse_section(piece: Piece, plain: Any) -> Any:
    if not isinstance(plain, dict) or not set(plain) <= {piece.section}:
        raise NeedsSlowPath("a section that does not stand alone")
    if piece.section not in SECTIONS or piece.section not in plain:
        return None
    return from_plain(_normalize_agents(piece.section, plain[piece.section]), SECTIONS[piece.section])


def _normalize_agents(section: str, plain: Any) -> Any:
    if section in TABLE_SECTIONS and isinstance(plain, dict):
        return {normalize_scalar("agent", key): inside for key, inside in plain.items()}
    return plain


def _reuse_parts(known: Document, text: str) -> list[Part] | None:
    """The parts of a text that differs from a known one in few places; None where that is not plain to see."""
    parts, made, place, i = known.parts, [], 0, 0
    while i < len(parts):
        part = parts[i]
        if text.startswith(part.text, place):
            made.append(part)
            place += len(part.text)
            i += 1
            continue
        beyond, edge = _find_unchanged(parts, i, text, place)
        if edge < 0:
            return None
        if not splitter.starts_with_entry(part.kind, text[place:edge], splitter.entry_indent(part.text)):
            if not made or (made[-1].kind, made[-1].section) != (part.kind, part.section) or part.kind == "single":
                return None
            place -= len(made.pop().text)
        fresh = _parse_stretch(part, parts[i:beyond], text[place:edge])
        if fresh is None:
            return None
        made += fresh
        place, i = edge, beyond
    return made if place == len(text) else None


def _find_unchanged(parts: list[Part], i: int, text: str, place: int) -> tuple[int, int]:
    """The next part that stands unchanged further on, and where."""
    for beyond in range(i + 1, min(i + 4, len(parts))):
        edge = text.find(parts[beyond].text, place, place + len(parts[i].text) + _MAX_SEARCH)
        if edge >= 0 and (edge == 0 or text[edge - 1] == "\n"):
            return beyond, edge
    return (len(parts), len(text)) if i + 4 > len(parts) else (i, -1)


def _parse_stretch(part: Part, gone: list[Part], text: str) -> list[Part] | None:
    """The parts of a changed stretch within one section."""
    if any((other.kind, other.section) != (part.kind, part.section) for other in gone):
        return None
    indent = splitter.entry_indent(part.text) if part.kind != "single" else 0
    if not splitter.is_closed(text, indent):
        return None
    try:
        pieces = (
            splitter.split_board(text)
            if part.kind == "single"
            else splitter.split_entries(part.kind, part.section, text, indent)
        )
        if part.kind == "single" and [piece.section for piece in pieces] != [part.section]:
            return None
        memory = {(other.section, other.text): other for other in gone}
        return [parse_piece(piece, memory) for piece in pieces] if text else []
    except (NeedsSlowPath, Unparsable):
        return None


def assemble(text: str, parts: list[Part], name: str = BOARD_NAME) -> Document:
    """The document of parts that were proved. Raises BoardUnreadable where version, revision or goal is missing."""
    values: dict[str, Any] = {}
    for part in parts:
        if part.kind == "item":
            values.setdefault(part.section, []).append(part.value)
        elif part.kind == "pair":
            table = values.setdefault(part.section, {})
            if part.key in table:
                raise NeedsSlowPath("an entry that stands twice")
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
        raise BoardUnreadable(f"{name} has no {' and no '.join(missing)}", REPAIR_HINT)
    if values["version"] > SCHEMA_VERSION:
        raise _too_new_error(values["version"], name)


def _too_new_error(version: object, name: str) -> BoardTooNew:
    return BoardTooNew(
        f"{name} has version {version}; this Liza knows versions up to {SCHEMA_VERSION}", "uv tool upgrade liza"
    )


def _refuse_newer(pieces: list[Piece], name: str) -> None:
    """A newer board may hold values that this Liza cannot read; its version must be the answer, not those."""
    for piece in pieces:
        if piece.section == "version" and isinstance(value := parse_piece(piece).value, int) and value > SCHEMA_VERSION:
            raise _too_new_error(value, name)


def read_whole(text: str, name: str = BOARD_NAME) -> Document:
    """The document of a text in one part, by the parser alone. Raises BoardUnreadable, BoardTooNew."""
    try:
        plain = parse.parse_text(text)
    except Unparsable as error:
        raise BoardUnreadable(f"{name}:{error.line}:{error.column}: {error.reason}", REPAIR_HINT) from None
    if not isinstance(plain, dict):
        raise BoardUnreadable(f"{name} is {'empty' if plain is None else 'no mapping'}", RESTORE_COMMAND)
    version = plain.get("version", "")
    if isinstance(version, str) and version.isdecimal() and int(version) > SCHEMA_VERSION:
        raise _too_new_error(version, name)
    _require_sections({key: 0 if key == "version" else value for key, value in plain.items()}, name)
    try:
        state = from_plain({key: _normalize_agents(key, value) for key, value in plain.items()}, State)
    except msgspec.ValidationError as error:
        field, found, wanted = describe_error(error, State)
        said = f"{parse.locate_error(text, str(error))} {field} is {found}, wanted {wanted}"
        raise BoardUnreadable(f"{name}:{said}", REPAIR_HINT) from None
    return Document(text, [Part("whole", "", text, value=state)], state)


def _section_text(text: str, section: str) -> str:
    """The text of one section; the whole text where it does not come apart."""
    try:
        return next((piece.text for piece in splitter.split_board(text) if piece.section == section), "")
    except NeedsSlowPath:
        return text


def find_unknown_config(text: str) -> tuple[str, ...]:
    """The keys of ``config`` in a text that name no setting, as ``settings.unknown``. Raises BoardUnreadable."""
    try:
        plain = parse.parse_text(_section_text(text, "config"))
    except Unparsable as error:
        raise BoardUnreadable(f"{BOARD_NAME}:{error.line}:{error.column}: {error.reason}", REPAIR_HINT) from None
    config = plain.get("config") if isinstance(plain, dict) else None
    return settings.unknown_keys(config) if isinstance(config, dict) else ()
