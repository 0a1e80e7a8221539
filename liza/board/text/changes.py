"""From one document to the next: only the lines of what changed are written anew, and every such line is proved.

Three ways, each taken where the one before is in doubt: replacing lines, ruamel's round trip of the entry, ruamel's
round trip of the whole file. Whichever is taken, the result is read back and must mean what was wanted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from liza.board.text import document, parse, roundtrip, splitter, yaml_lines
from liza.board.text.document import SECTIONS, Document, Part, assembled, meant, read_whole
from liza.board.text.parse import Doubt, Unparsable
from liza.board.text.splice import Sheet, all_comments, change, offset_of
from liza.board.text.splitter import LISTS, TABLES, Piece
from liza.board.text.values import build, dump, understood
from liza.board.text.yaml_lines import Style
from liza.rules.errors import BoardInconsistent, BoardUnreadable
from liza.rules.model import State


def splice(text: str, before: State, after: State) -> str:
    """The text of ``before`` changed to mean ``after``. Raises BoardInconsistent where that cannot be had."""
    known = document.read(text)
    if known.state != before:
        raise BoardInconsistent("the text does not mean the state that was changed", "liza validate")
    return spliced(known, after).text


def spliced(known: Document, after: State) -> Document:
    """The document that means ``after``. Raises BoardInconsistent where no way leads to it; nothing is half done."""
    try:
        if not known.is_whole:
            return _by_parts(known, after)
    except (Doubt, Unparsable):
        pass
    return _whole(known, after)


def _by_parts(known: Document, after: State) -> Document:
    parts, style = known.parts, known.style
    for section in SECTIONS:
        old, new = getattr(known.state, section), getattr(after, section)
        if old is not new and old != new:
            parts = _section(parts, section, old, new, style)
    text = "".join(part.text for part in parts)
    made = _assembled(known, text, parts)
    if made.state != after and made.state != build(dump(after), State):
        raise Doubt("the parts do not add up to what was wanted")
    return made if made.took_names(known) else document.resplit(made)


def _assembled(known: Document, text: str, parts: list[Part]) -> Document:
    """The document of the parts; where all stand in their old places, only what changed is put together again."""
    if len(parts) != len(known.parts):
        return assembled(text, parts)
    touched = {now.section for was, now in zip(known.parts, parts, strict=True) if was is not now}
    if any((was.kind, was.section) != (now.kind, now.section) for was, now in zip(known.parts, parts, strict=True)):
        return assembled(text, parts)
    own = [part for part in parts if part.section in touched and part.section in SECTIONS]
    values = {section: _value_of([part for part in own if part.section == section], section) for section in touched}
    return Document(text, parts, msgspec.structs.replace(known.state, **values))


def _section(parts: list[Part], section: str, old: Any, new: Any, style: Style) -> list[Part]:
    """The parts with those of one section changed."""
    own = [i for i, part in enumerate(parts) if part.section == section]
    if not own:
        return _with_section(parts, section, new, style)
    first, last = own[0], own[-1] + 1
    if last - first != len(own):
        raise Doubt("a section in two places")
    if len(own) == 1:
        fresh = _single(parts[first], old, new, style)
    else:
        fresh = [parts[first], *_entries(parts[first + 1 : last], section, old, new, style)]
        if len(fresh) == 1:
            fresh = [meant(Piece("single", section, fresh[0].text))]
    if last < len(parts) and not fresh[-1].text.endswith("\n"):
        raise Doubt("a line without its end")
    return [*parts[:first], *fresh, *parts[last:]]


def _with_section(parts: list[Part], section: str, value: Any, style: Style) -> list[Part]:
    """A section that was not there, after the nearest one that the model names earlier."""
    names = list(SECTIONS)
    earlier = set(names[: names.index(section)])
    place = max((i + 1 for i, part in enumerate(parts) if part.section in earlier), default=len(parts))
    text = _joined(yaml_lines.pair(section, dump(value), 0, style), style)
    fresh = [meant(piece) for piece in splitter.split(text)]
    above = parts[:place]
    _end_line(above, style)
    return [*above, *fresh, *parts[place:]]


def _joined(lines: Iterable[str], style: Style) -> str:
    return "".join(line + style.newline for line in lines)


def _end_line(parts: list[Part], style: Style) -> None:
    """Gives the last line of the last part an end."""
    if not parts or parts[-1].text.endswith("\n"):
        return
    last = parts[-1]
    parts[-1] = meant(Piece(last.kind, last.section, last.text + style.newline))
    if parts[-1].value != last.value:
        raise Doubt("the end of the line matters")


def _single(part: Part, old: Any, new: Any, style: Style) -> list[Part]:
    """A section in one piece: its new text may come apart into entries."""
    name = part.section

    def proved(text: str) -> list[Part]:
        fresh = [meant(piece) for piece in splitter.split(text)]
        if [found.section for found in fresh] != [name] * len(fresh) or _value_of(fresh, name) != build(
            dump(new), SECTIONS[name]
        ):
            raise Doubt("the section does not mean what was wanted")
        return fresh

    return _proved(part, {name: dump(old)}, {name: dump(new)}, State, style, proved)


def _value_of(parts: list[Part], section: str) -> Any:
    if section in LISTS and parts[0].kind == "text":
        return tuple(part.value for part in parts[1:])
    if section in TABLES and parts[0].kind == "text":
        return {part.key: part.value for part in parts[1:]}
    return parts[0].value if parts[0].value is not None else build(dump(()), SECTIONS[section])


def _entries(parts: list[Part], section: str, old: Any, new: Any, style: Style) -> list[Part]:
    """The entries of a section; those that are the same keep their slices."""
    if _same_row(old, new):
        rows = (old.values(), new.values()) if isinstance(old, dict) else (old, new)
        return [
            part if was is now or was == now else _entry(part, was, now, style)
            for part, was, now in zip(parts, *rows, strict=True)
        ]
    before, after = _keyed(old), _keyed(new)
    pool: dict[str, list[tuple[Part, Any]]] = {}
    for part, (key, was) in zip(parts, before, strict=True):
        pool.setdefault(key, []).append((part, was))
    made: list[Part] = []
    indent = splitter.indent_of(parts[0].text)
    for key, now in after:
        if pool.get(key):
            part, was = pool[key].pop(0)
            _end_line(made, style)
            made.append(part if was == now else _entry(part, was, now, style))
        else:
            _end_line(made, style)
            _add_entry(made, (parts[0].kind, section), key, now, indent, style)
    return made


def _same_row(old: Any, new: Any) -> bool:
    """Whether the same entries stand in the same order."""
    if len(old) != len(new):
        return False
    if isinstance(old, dict):
        return list(old) == list(new)
    if old and not hasattr(old[0], "id"):
        return True
    return all(was is now or was.id == now.id for was, now in zip(old, new, strict=True))


def _keyed(value: Any) -> list[tuple[str, Any]]:
    """Entries with what names them: an id, a key, or else the place in the row."""
    if isinstance(value, dict):
        return list(value.items())
    return [(getattr(entry, "id", f"#{i}"), entry) for i, entry in enumerate(value)]


def _add_entry(made: list[Part], place: tuple[str, str], key: str, value: Any, indent: int, style: Style) -> None:
    """Adds a new entry after the last, before the empty lines that close the section."""
    kind, section = place
    plain = dump(value)
    lines = yaml_lines.item(plain, "", indent, style) if kind == "item" else yaml_lines.pair(key, plain, indent, style)
    text = _joined(lines, style)
    if made and made[-1].text.endswith(style.newline * 2):
        last = made[-1]
        body = last.text.rstrip("\r\n") + style.newline
        short = meant(Piece(last.kind, last.section, body))
        if short.value == last.value:
            made[-1] = short
            text += last.text[len(body) :]
    fresh = meant(Piece(kind, section, text))
    if fresh.value != build(plain, type(value)):
        raise Doubt("the new entry does not mean what was wanted")
    made.append(fresh)


def _entry(part: Part, old: Any, new: Any, style: Style) -> Part:
    """One changed entry."""
    wanted = build(dump(new), type(new))

    def proved(text: str) -> list[Part]:
        made = meant(Piece(part.kind, part.section, text))
        if made.key != part.key or made.value != wanted:
            raise Doubt("the entry does not mean what was wanted")
        return [made]

    was, now = dump(old), dump(new)
    if part.kind == "item":
        return _proved(part, [was], [now], SECTIONS[part.section], style, proved)[0]
    key = next(iter(parse.part(part.text, "")))
    return _proved(part, {key: was}, {key: now}, SECTIONS[part.section], style, proved)[0]


def _proved(part: Part, old: Any, new: Any, kind: Any, style: Style, proved: Any) -> list[Part]:
    """The part with its lines replaced, or else sent through ruamel. Raises Doubt where neither is right."""
    try:
        node = parse.outline(part.text)
        found = offset_of(node)
        sheet = Sheet(part.text, style if found is None else Style(style.newline, found))
        change(sheet, node, old, new, kind)
        fresh: list[Part] = proved(sheet.text())
        return fresh
    except (Doubt, Unparsable, msgspec.ValidationError):
        pass
    text = roundtrip.changed(part.text, old, new)
    if all_comments(text) != all_comments(part.text) or roundtrip.foreign(text, kind) != roundtrip.foreign(
        part.text, kind
    ):
        raise Doubt("the round trip lost something")
    made: list[Part] = proved(text)
    return made


def _whole(known: Document, after: State) -> Document:
    """The whole file as one entry: its lines replaced, or else all of it sent through ruamel."""
    old, new = dump(known.state), dump(after)
    wanted = build(new, State)
    for way in (_lines_of_whole, _round_trip_of_whole):
        try:
            made = read_whole(way(known, old, new))
            if made.state == wanted:
                return document.read(made.text, known=None if known.is_whole else known)
        except (Doubt, Unparsable, BoardUnreadable):
            continue
    raise BoardInconsistent(
        f"the change cannot be written into {document.NAME} without disturbing the rest of it; nothing was written",
        "liza edit",
    )


def _lines_of_whole(known: Document, old: Any, new: Any) -> str:
    node = parse.outline(known.text)
    found = offset_of(node)
    sheet = Sheet(known.text, Style(known.style.newline, 2 if found is None else found))
    change(sheet, node, _as_typed(node, old), _as_typed(node, new), State)
    return sheet.text()


def _as_typed(node: parse.Node, plain: Any) -> Any:
    """The plain state with the agents named as the text names them: it may say reviewer-1."""
    made = dict(plain)
    for table in TABLES & plain.keys() & node.pairs.keys():
        typed = {understood("agent", key): key for key in node.pairs[table][1].pairs}
        made[table] = {typed.get(key, key): value for key, value in plain[table].items()}
    return made


def _round_trip_of_whole(known: Document, old: Any, new: Any) -> str:
    text = roundtrip.changed(known.text, old, new)
    if all_comments(text) != all_comments(known.text) or roundtrip.foreign(text, State) != roundtrip.foreign(
        known.text, State
    ):
        raise Doubt("the round trip lost something")
    return text
