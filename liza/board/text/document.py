"""The board as text and as values at once: a row of slices, each remembered with what it means."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import msgspec

from liza.board.text import parse, splitter
from liza.board.text.parse import Doubt, Unparsable
from liza.board.text.splitter import LISTS, TABLES, Piece
from liza.board.text.values import build, fields, in_words, struct_in, understood
from liza.board.text.yaml_lines import Style
from liza.rules import settings
from liza.rules.errors import BoardTooNew, BoardUnreadable
from liza.rules.model import SCHEMA_VERSION, State

RESTORE: Final = "liza restore --last-good"
MEND: Final = f"liza edit, or: {RESTORE}"
NAME: Final = ".liza/state.yaml"
SECTIONS: Final[dict[str, Any]] = fields(State)
_FURTHEST: Final = 1 << 16


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

    def took_names(self, other: Document) -> bool:
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
        return Style(newline, min(splitter.indent_of(entry.text), 2) if entry else 2)


def load(text: str, name: str = NAME) -> State:
    """What a board's text means. Raises BoardUnreadable, BoardTooNew."""
    return read(text, name).state


def read(text: str, name: str = NAME, known: Document | None = None) -> Document:
    """The document of a text; parts that ``known`` has are not parsed again. Raises BoardUnreadable, BoardTooNew."""
    if known is not None and known.text == text:
        return known
    try:
        if known is not None and not known.is_whole and (parts := _resynced(known, text)) is not None:
            made = assembled(text, parts, name)
            made.took_names(known)
            return made
        memory = {(part.section, part.text): part for part in known.parts} if known is not None else {}
        pieces = splitter.split(text)
        _refuse_newer(pieces, name)
        return assembled(text, [meant(piece, memory) for piece in pieces], name)
    except (Doubt, Unparsable):
        return read_whole(text, name)


def resplit(made: Document) -> Document:
    """A document that was put together, split as whoever reads it will split it. Raises Doubt, Unparsable."""
    memory = {(part.section, part.text): part for part in made.parts}
    parts = [meant(piece, memory) for piece in splitter.split(made.text)]
    again = assembled(made.text, parts)
    if again.state != made.state:
        raise Doubt("the text does not come apart as it was put together")
    return again


def meant(piece: Piece, memory: dict[tuple[str, str], Part] | None = None) -> Part:
    """The part of a piece, from memory or from the parser. Raises Doubt, Unparsable."""
    if memory and (found := memory.get((piece.section, piece.text))) is not None and found.kind == piece.kind:
        return found
    made = Part(piece.kind, piece.section, piece.text)
    if piece.kind == "text":
        _check_empty(piece)
        return made
    plain = parse.part(piece.text, piece.section if piece.kind != "single" else "")
    try:
        if piece.kind == "item":
            made.key, made.value = _item(piece, plain)
        elif piece.kind == "pair":
            made.key, made.value = _pair(piece, plain)
        else:
            made.value = _single(piece, plain)
    except msgspec.ValidationError as error:
        raise Doubt(str(error)) from None
    return made


def _check_empty(piece: Piece) -> None:
    """A head holds no value: comments, a marker, a section's name."""
    if piece.section and parse.part(piece.text, "") not in ({}, None):
        raise Doubt("a section's head has a value")


def _item(piece: Piece, plain: Any) -> tuple[str, Any]:
    if not isinstance(plain, list) or len(plain) != 1 or not isinstance(plain[0], dict):
        raise Doubt("an entry that does not stand alone")
    value = build(plain[0], struct_in(SECTIONS[piece.section]))
    return getattr(value, "id", ""), value


def _pair(piece: Piece, plain: Any) -> tuple[str, Any]:
    if not isinstance(plain, dict) or len(plain) != 1:
        raise Doubt("an entry that does not stand alone")
    [(key, inside)] = plain.items()
    return understood("agent", key), build(inside, struct_in(SECTIONS[piece.section]))


def _single(piece: Piece, plain: Any) -> Any:
    if not isinstance(plain, dict) or not set(plain) <= {piece.section}:
        raise Doubt("a section that does not stand alone")
    if piece.section not in SECTIONS or piece.section not in plain:
        return None
    return build(_spelled(piece.section, plain[piece.section]), SECTIONS[piece.section])


def _spelled(section: str, plain: Any) -> Any:
    if section in TABLES and isinstance(plain, dict):
        return {understood("agent", key): inside for key, inside in plain.items()}
    return plain


def _resynced(known: Document, text: str) -> list[Part] | None:
    """The parts of a text that differs from a known one in few places; None where that is not plain to see."""
    parts, made, place, i = known.parts, [], 0, 0
    while i < len(parts):
        part = parts[i]
        if text.startswith(part.text, place):
            made.append(part)
            place += len(part.text)
            i += 1
            continue
        beyond, edge = _next_known(parts, i, text, place)
        if edge < 0:
            return None
        if not splitter.opens(part.kind, text[place:edge], splitter.indent_of(part.text)):
            if not made or (made[-1].kind, made[-1].section) != (part.kind, part.section) or part.kind == "single":
                return None
            place -= len(made.pop().text)
        fresh = _between(part, parts[i:beyond], text[place:edge])
        if fresh is None:
            return None
        made += fresh
        place, i = edge, beyond
    return made if place == len(text) else None


def _next_known(parts: list[Part], i: int, text: str, place: int) -> tuple[int, int]:
    """The next part that stands unchanged further on, and where."""
    for beyond in range(i + 1, min(i + 4, len(parts))):
        edge = text.find(parts[beyond].text, place, place + len(parts[i].text) + _FURTHEST)
        if edge >= 0 and (edge == 0 or text[edge - 1] == "\n"):
            return beyond, edge
    return (len(parts), len(text)) if i + 4 > len(parts) else (i, -1)


def _between(part: Part, gone: list[Part], text: str) -> list[Part] | None:
    """The parts of a changed stretch within one section."""
    if any((other.kind, other.section) != (part.kind, part.section) for other in gone):
        return None
    indent = splitter.indent_of(part.text) if part.kind != "single" else 0
    if not splitter.closes(text, indent):
        return None
    try:
        pieces = (
            splitter.split(text) if part.kind == "single" else splitter.entries(part.kind, part.section, text, indent)
        )
        if part.kind == "single" and [piece.section for piece in pieces] != [part.section]:
            return None
        memory = {(other.section, other.text): other for other in gone}
        return [meant(piece, memory) for piece in pieces] if text else []
    except (Doubt, Unparsable):
        return None


def assembled(text: str, parts: list[Part], name: str = NAME) -> Document:
    """The document of parts that were proved. Raises BoardUnreadable where version, revision or goal is missing."""
    values: dict[str, Any] = {}
    for part in parts:
        if part.kind == "item":
            values.setdefault(part.section, []).append(part.value)
        elif part.kind == "pair":
            table = values.setdefault(part.section, {})
            if part.key in table:
                raise Doubt("an entry that stands twice")
            table[part.key] = part.value
        elif part.value is not None:
            values[part.section] = part.value
    for section in LISTS & values.keys():
        values[section] = tuple(values[section])
    _require(values, name)
    return Document(text, parts, State(**values))


def _require(values: dict[str, Any], name: str) -> None:
    missing = [section for section in ("version", "revision", "goal") if section not in values]
    if missing:
        raise BoardUnreadable(f"{name} has no {' and no '.join(missing)}", MEND)
    if values["version"] > SCHEMA_VERSION:
        raise _newer(values["version"], name)


def _newer(version: object, name: str) -> BoardTooNew:
    return BoardTooNew(
        f"{name} has version {version}; this Liza knows versions up to {SCHEMA_VERSION}", "uv tool upgrade liza"
    )


def _refuse_newer(pieces: list[Piece], name: str) -> None:
    """A newer board may hold values that this Liza cannot read; its version must be the answer, not those."""
    for piece in pieces:
        if piece.section == "version" and isinstance(value := meant(piece).value, int) and value > SCHEMA_VERSION:
            raise _newer(value, name)


def read_whole(text: str, name: str = NAME) -> Document:
    """The document of a text in one part, by the parser alone. Raises BoardUnreadable, BoardTooNew."""
    try:
        plain = parse.whole(text)
    except Unparsable as error:
        raise BoardUnreadable(f"{name}:{error.line}:{error.column}: {error.reason}", MEND) from None
    if not isinstance(plain, dict):
        raise BoardUnreadable(f"{name} is {'empty' if plain is None else 'no mapping'}", RESTORE)
    version = plain.get("version", "")
    if isinstance(version, str) and version.isdecimal() and int(version) > SCHEMA_VERSION:
        raise _newer(version, name)
    _require({key: 0 if key == "version" else value for key, value in plain.items()}, name)
    try:
        state = build({key: _spelled(key, value) for key, value in plain.items()}, State)
    except msgspec.ValidationError as error:
        field, found, wanted = in_words(error, State)
        said = f"{parse.place_of(text, str(error))} {field} is {found}, wanted {wanted}"
        raise BoardUnreadable(f"{name}:{said}", MEND) from None
    return Document(text, [Part("whole", "", text, value=state)], state)


def _alone(text: str, section: str) -> str:
    """The text of one section; the whole text where it does not come apart."""
    try:
        return next((piece.text for piece in splitter.split(text) if piece.section == section), "")
    except Doubt:
        return text


def unknown_config(text: str) -> tuple[str, ...]:
    """The keys of ``config`` in a text that name no setting, as ``settings.unknown``. Raises BoardUnreadable."""
    try:
        plain = parse.whole(_alone(text, "config"))
    except Unparsable as error:
        raise BoardUnreadable(f"{NAME}:{error.line}:{error.column}: {error.reason}", MEND) from None
    config = plain.get("config") if isinstance(plain, dict) else None
    return settings.unknown(config) if isinstance(config, dict) else ()
