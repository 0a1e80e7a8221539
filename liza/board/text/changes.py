"""From one document to the next: only the lines of what changed are written anew, and every such line is proved.

Three ways, each taken where the one before is in doubt: replacing lines, ruamel's round trip of the entry, ruamel's
round trip of the whole file. Whichever is taken, the result is read back and must mean what was wanted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from liza.board.text import document, parse, roundtrip, splitter, yaml_lines
from liza.board.text.document import SECTIONS, Document, Part, assemble, parse_piece, read_whole
from liza.board.text.parse import NeedsSlowPath, Unparsable
from liza.board.text.splice import LineEditor, collect_edits, find_item_offset, sorted_comments
from liza.board.text.splitter import LIST_SECTIONS, TABLE_SECTIONS, Piece
from liza.board.text.values import from_plain, normalize_scalar, to_plain
from liza.board.text.yaml_lines import Style
from liza.rules.errors import BoardInconsistent, BoardUnreadable
from liza.rules.model import State


def change_text(text: str, before: State, after: State) -> str:
    """The text of ``before`` changed to mean ``after``. Raises BoardInconsistent where that cannot be had."""
    known = document.read_document(text)
    if known.state != before:
        raise BoardInconsistent("the text does not mean the state that was changed", "liza validate")
    return change_document(known, after).text


def change_document(known: Document, after: State) -> Document:
    """The document that means ``after``. Raises BoardInconsistent where no way leads to it; nothing is half done."""
    try:
        if not known.is_whole:
            return _change_parts(known, after)
    except (NeedsSlowPath, Unparsable):
        pass
    return _change_whole(known, after)


def _change_parts(known: Document, after: State) -> Document:
    parts, style = known.parts, known.style
    for section in SECTIONS:
        old, new = getattr(known.state, section), getattr(after, section)
        if old is not new and old != new:
            parts = _change_section(parts, section, old, new, style)
    text = "".join(part.text for part in parts)
    made = _reassemble(known, text, parts)
    if made.state != after and made.state != from_plain(to_plain(after), State):
        raise NeedsSlowPath("the parts do not add up to what was wanted")
    return made if made.copy_names_if_same(known) else document.resplit(made)


def _reassemble(known: Document, text: str, parts: list[Part]) -> Document:
    """The document of the parts; where all stand in their old places, only what changed is put together again."""
    if len(parts) != len(known.parts):
        return assemble(text, parts)
    touched = {now.section for was, now in zip(known.parts, parts, strict=True) if was is not now}
    if any((was.kind, was.section) != (now.kind, now.section) for was, now in zip(known.parts, parts, strict=True)):
        return assemble(text, parts)
    own = [part for part in parts if part.section in touched and part.section in SECTIONS]
    values = {
        section: _section_value([part for part in own if part.section == section], section) for section in touched
    }
    return Document(text, parts, msgspec.structs.replace(known.state, **values))


def _change_section(parts: list[Part], section: str, old: Any, new: Any, style: Style) -> list[Part]:
    """The parts with those of one section changed."""
    own = [i for i, part in enumerate(parts) if part.section == section]
    if not own:
        return _add_section(parts, section, new, style)
    first, last = own[0], own[-1] + 1
    if last - first != len(own):
        raise NeedsSlowPath("a section in two places")
    if len(own) == 1:
        fresh = _change_single(parts[first], old, new, style)
    else:
        fresh = [parts[first], *_change_entries(parts[first + 1 : last], section, old, new, style)]
        if len(fresh) == 1:
            fresh = [parse_piece(Piece("single", section, fresh[0].text))]
    if last < len(parts) and not fresh[-1].text.endswith("\n"):
        raise NeedsSlowPath("a line without its end")
    return [*parts[:first], *fresh, *parts[last:]]


def _add_section(parts: list[Part], section: str, value: Any, style: Style) -> list[Part]:
    """A section that was not there, after the nearest one that the model names earlier."""
    names = list(SECTIONS)
    earlier = set(names[: names.index(section)])
    place = max((i + 1 for i, part in enumerate(parts) if part.section in earlier), default=len(parts))
    text = _join_lines(yaml_lines.pair_lines(section, to_plain(value), 0, style), style)
    fresh = [parse_piece(piece) for piece in splitter.split_board(text)]
    above = parts[:place]
    _end_line(above, style)
    return [*above, *fresh, *parts[place:]]


def _join_lines(lines: Iterable[str], style: Style) -> str:
    return "".join(line + style.newline for line in lines)


def _end_line(parts: list[Part], style: Style) -> None:
    """Gives the last line of the last part an end."""
    if not parts or parts[-1].text.endswith("\n"):
        return
    last = parts[-1]
    parts[-1] = parse_piece(Piece(last.kind, last.section, last.text + style.newline))
    if parts[-1].value != last.value:
        raise NeedsSlowPath("the end of the line matters")


def _change_single(part: Part, old: Any, new: Any, style: Style) -> list[Part]:
    """A section in one piece: its new text may come apart into entries."""
    name = part.section

    def proved(text: str) -> list[Part]:
        fresh = [parse_piece(piece) for piece in splitter.split_board(text)]
        if [found.section for found in fresh] != [name] * len(fresh) or _section_value(fresh, name) != from_plain(
            to_plain(new), SECTIONS[name]
        ):
            raise NeedsSlowPath("the section does not mean what was wanted")
        return fresh

    return _rewrite_and_check(part, {name: to_plain(old)}, {name: to_plain(new)}, State, style, proved)


def _section_value(parts: list[Part], section: str) -> Any:
    if section in LIST_SECTIONS and parts[0].kind == "text":
        return tuple(part.value for part in parts[1:])
    if section in TABLE_SECTIONS and parts[0].kind == "text":
        return {part.key: part.value for part in parts[1:]}
    return parts[0].value if parts[0].value is not None else from_plain(to_plain(()), SECTIONS[section])


def _change_entries(parts: list[Part], section: str, old: Any, new: Any, style: Style) -> list[Part]:
    """The entries of a section; those that are the same keep their slices."""
    if _has_same_entries(old, new):
        rows = (old.values(), new.values()) if isinstance(old, dict) else (old, new)
        return [
            part if was is now or was == now else _change_entry(part, was, now, style)
            for part, was, now in zip(parts, *rows, strict=True)
        ]
    before, after = _key_entries(old), _key_entries(new)
    pool: dict[str, list[tuple[Part, Any]]] = {}
    for part, (key, was) in zip(parts, before, strict=True):
        pool.setdefault(key, []).append((part, was))
    made: list[Part] = []
    indent = splitter.entry_indent(parts[0].text)
    for key, now in after:
        if pool.get(key):
            part, was = pool[key].pop(0)
            _end_line(made, style)
            made.append(part if was == now else _change_entry(part, was, now, style))
        else:
            _end_line(made, style)
            _add_entry(made, (parts[0].kind, section), key, now, indent, style)
    return made


def _has_same_entries(old: Any, new: Any) -> bool:
    """Whether the same entries stand in the same order."""
    if len(old) != len(new):
        return False
    if isinstance(old, dict):
        return list(old) == list(new)
    if old and not hasattr(old[0], "id"):
        return True
    return all(was is now or was.id == now.id for was, now in zip(old, new, strict=True))


def _key_entries(value: Any) -> list[tuple[str, Any]]:
    """Entries with what names them: an id, a key, or else the place in the row."""
    if isinstance(value, dict):
        return list(value.items())
    return [(getattr(entry, "id", f"#{i}"), entry) for i, entry in enumerate(value)]


def _add_entry(made: list[Part], place: tuple[str, str], key: str, value: Any, indent: int, style: Style) -> None:
    """Adds a new entry after the last, before the empty lines that close the section."""
    kind, section = place
    plain = to_plain(value)
    lines = (
        yaml_lines.item_lines(plain, "", indent, style)
        if kind == "item"
        else yaml_lines.pair_lines(key, plain, indent, style)
    )
    text = _join_lines(lines, style)
    if made and made[-1].text.endswith(style.newline * 2):
        last = made[-1]
        body = last.text.rstrip("\r\n") + style.newline
        short = parse_piece(Piece(last.kind, last.section, body))
        if short.value == last.value:
            made[-1] = short
            text += last.text[len(body) :]
    fresh = parse_piece(Piece(kind, section, text))
    if fresh.value != from_plain(plain, type(value)):
        raise NeedsSlowPath("the new entry does not mean what was wanted")
    made.append(fresh)


def _change_entry(part: Part, old: Any, new: Any, style: Style) -> Part:
    """One changed entry."""
    wanted = from_plain(to_plain(new), type(new))

    def proved(text: str) -> list[Part]:
        made = parse_piece(Piece(part.kind, part.section, text))
        if made.key != part.key or made.value != wanted:
            raise NeedsSlowPath("the entry does not mean what was wanted")
        return [made]

    was, now = to_plain(old), to_plain(new)
    if part.kind == "item":
        return _rewrite_and_check(part, [was], [now], SECTIONS[part.section], style, proved)[0]
    key = next(iter(parse.parse_part(part.text, "")))
    return _rewrite_and_check(part, {key: was}, {key: now}, SECTIONS[part.section], style, proved)[0]


def _rewrite_and_check(part: Part, old: Any, new: Any, kind: Any, style: Style, proved: Any) -> list[Part]:
    """The part with its lines replaced, or else sent through ruamel. Raises Doubt where neither is right."""
    try:
        node = parse.parse_outline(part.text)
        found = find_item_offset(node)
        sheet = LineEditor(part.text, style if found is None else Style(style.newline, found))
        collect_edits(sheet, node, old, new, kind)
        fresh: list[Part] = proved(sheet.apply_edits())
        return fresh
    except (NeedsSlowPath, Unparsable, msgspec.ValidationError):
        pass
    text = roundtrip.round_trip(part.text, old, new)
    if sorted_comments(text) != sorted_comments(part.text) or roundtrip.find_unknown_keys(
        text, kind
    ) != roundtrip.find_unknown_keys(part.text, kind):
        raise NeedsSlowPath("the round trip lost something")
    made: list[Part] = proved(text)
    return made


def _change_whole(known: Document, after: State) -> Document:
    """The whole file as one entry: its lines replaced, or else all of it sent through ruamel."""
    old, new = to_plain(known.state), to_plain(after)
    wanted = from_plain(new, State)
    for way in (_splice_whole, _round_trip_whole):
        try:
            made = read_whole(way(known, old, new))
            if made.state == wanted:
                return document.read_document(made.text, known=None if known.is_whole else known)
        except (NeedsSlowPath, Unparsable, BoardUnreadable):
            continue
    raise BoardInconsistent(
        f"the change cannot be written to {document.BOARD_NAME} without altering other lines; nothing was written",
        "liza edit",
    )


def _splice_whole(known: Document, old: Any, new: Any) -> str:
    node = parse.parse_outline(known.text)
    found = find_item_offset(node)
    sheet = LineEditor(known.text, Style(known.style.newline, 2 if found is None else found))
    collect_edits(sheet, node, _with_typed_agents(node, old), _with_typed_agents(node, new), State)
    return sheet.apply_edits()


def _with_typed_agents(node: parse.Node, plain: Any) -> Any:
    """The plain state with the agents named as the text names them: it may say reviewer-1."""
    made = dict(plain)
    for table in TABLE_SECTIONS & plain.keys() & node.pairs.keys():
        typed = {normalize_scalar("agent", key): key for key in node.pairs[table][1].pairs}
        made[table] = {typed.get(key, key): value for key, value in plain[table].items()}
    return made


def _round_trip_whole(known: Document, old: Any, new: Any) -> str:
    text = roundtrip.round_trip(known.text, old, new)
    if sorted_comments(text) != sorted_comments(known.text) or roundtrip.find_unknown_keys(
        text, State
    ) != roundtrip.find_unknown_keys(known.text, State):
        raise NeedsSlowPath("the round trip lost something")
    return text
