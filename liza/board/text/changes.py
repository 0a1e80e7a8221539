"""Write a changed state into the text of a board, so that only the changed lines differ.

There are three methods; each is used if the one before is not certain: replace lines, ruamel's round trip of the entry,
ruamel's round trip of the whole file. Every result is parsed again and compared with the wanted state.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.resolver import VersionedResolver
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, PlainScalarString

from liza.board.text import document, parse, splitter, yaml_lines
from liza.board.text.document import SECTIONS, Document, Part, assemble, parse_piece, read_whole
from liza.board.text.parse import NeedsSlowPath, Unparsable
from liza.board.text.splice import LineEditor, collect_edits, find_item_offset, sorted_comments
from liza.board.text.splitter import LIST_SECTIONS, TABLE_SECTIONS, Piece, PieceKind
from liza.board.text.values import ABSENT, NULLS, find_struct, from_plain, normalize_scalar, struct_fields, to_plain
from liza.board.text.yaml_lines import Style
from liza.model.errors import BoardInconsistent, BoardUnreadable
from liza.model.model import State


def change_document(before: Document, after: State) -> Document:
    """Return the document with the state ``after``. Raises BoardInconsistent if no method can write the change."""
    try:
        if not before.is_whole:
            return _change_parts(before, after)
    except (NeedsSlowPath, Unparsable):
        pass
    return _change_whole(before, after)


def _change_parts(before: Document, after: State) -> Document:
    parts, style = before.parts, before.style
    for section in SECTIONS:
        old, new = getattr(before.state, section), getattr(after, section)
        if old is not new and old != new:
            parts = _change_section(parts, section, old, new, style)
    text = "".join(part.text for part in parts)
    changed = _reassemble(before, text, parts)
    if changed.state != after and changed.state != from_plain(to_plain(after), State):
        raise NeedsSlowPath("the changed parts do not have the wanted state")
    is_alike = changed.copy_names_if_same(before) and document.is_split_alike(before, changed)
    return changed if is_alike else document.resplit(changed)


def _reassemble(before: Document, text: str, parts: list[Part]) -> Document:
    """Return the document of the parts. If their order is the same, compute only the values of changed sections."""
    if len(parts) != len(before.parts):
        return assemble(text, parts)
    changed_sections = {now.section for was, now in zip(before.parts, parts, strict=True) if was is not now}
    if any((was.kind, was.section) != (now.kind, now.section) for was, now in zip(before.parts, parts, strict=True)):
        return assemble(text, parts)
    changed_parts = [part for part in parts if part.section in changed_sections and part.section in SECTIONS]
    values = {
        section: _section_value([part for part in changed_parts if part.section == section], section)
        for section in changed_sections
    }
    return Document(text, parts, msgspec.structs.replace(before.state, **values))


def _change_section(parts: list[Part], section: str, old: Any, new: Any, style: Style) -> list[Part]:
    """Return the parts with those of one section changed."""
    indexes = [i for i, part in enumerate(parts) if part.section == section]
    if not indexes:
        return _add_section(parts, section, new, style)
    first, last = indexes[0], indexes[-1] + 1
    if last - first != len(indexes):
        raise NeedsSlowPath("a section with other parts inside it")
    if len(indexes) == 1:
        changed = _change_single(parts[first], old, new, style)
    else:
        changed = [parts[first], *_change_entries(parts[first + 1 : last], section, old, new, style)]
        if len(changed) == 1:
            changed = [parse_piece(Piece(PieceKind.SINGLE, section, changed[0].text))]
    if last < len(parts) and not changed[-1].text.endswith("\n"):
        raise NeedsSlowPath("a line without its end")
    return [*parts[:first], *changed, *parts[last:]]


def _add_section(parts: list[Part], section: str, value: Any, style: Style) -> list[Part]:
    """Add a missing section, after the nearest section that is earlier in the model."""
    names = list(SECTIONS)
    earlier = set(names[: names.index(section)])
    index = max((i + 1 for i, part in enumerate(parts) if part.section in earlier), default=len(parts))
    text = _join_lines(yaml_lines.pair_lines(section, to_plain(value), 0, style), style)
    added = [parse_piece(piece) for piece in splitter.split_board(text)]
    before = parts[:index]
    _end_line(before, style)
    return [*before, *added, *parts[index:]]


def _join_lines(lines: Iterable[str], style: Style) -> str:
    return "".join(line + style.newline for line in lines)


def _end_line(parts: list[Part], style: Style) -> None:
    """End the last line of the last part with a newline. Raises NeedsSlowPath if this changes its value."""
    if not parts or parts[-1].text.endswith("\n"):
        return
    last = parts[-1]
    parts[-1] = parse_piece(Piece(last.kind, last.section, last.text + style.newline))
    if parts[-1].value != last.value:
        raise NeedsSlowPath("the end of the line matters")


def _change_single(part: Part, old: Any, new: Any, style: Style) -> list[Part]:
    """Change a section in one piece; its new text may split into entries."""
    name = part.section

    def check(text: str) -> list[Part]:
        changed = [parse_piece(piece) for piece in splitter.split_board(text)]
        if [piece.section for piece in changed] != [name] * len(changed) or _section_value(changed, name) != from_plain(
            to_plain(new), SECTIONS[name]
        ):
            raise NeedsSlowPath("the section does not have the wanted value")
        return changed

    return _rewrite_and_check(part, {name: to_plain(old)}, {name: to_plain(new)}, State, style, check)


def _section_value(parts: list[Part], section: str) -> Any:
    if section in LIST_SECTIONS and parts[0].kind is PieceKind.TEXT:
        return tuple(part.value for part in parts[1:])
    if section in TABLE_SECTIONS and parts[0].kind is PieceKind.TEXT:
        return {part.key: part.value for part in parts[1:]}
    return parts[0].value if parts[0].value is not None else from_plain(to_plain(()), SECTIONS[section])


def _change_entries(parts: list[Part], section: str, old: Any, new: Any, style: Style) -> list[Part]:
    """Return the entries of a section; unchanged entries keep their text."""
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
    changed: list[Part] = []
    indent = splitter.entry_indent(parts[0].text)
    for key, now in after:
        if pool.get(key):
            part, was = pool[key].pop(0)
            _end_line(changed, style)
            changed.append(part if was == now else _change_entry(part, was, now, style))
        else:
            _end_line(changed, style)
            _add_entry(changed, (parts[0].kind, section), key, now, indent, style)
    return changed


def _has_same_entries(old: Any, new: Any) -> bool:
    """Return whether both have the same entries in the same order."""
    if len(old) != len(new):
        return False
    if isinstance(old, dict):
        return list(old) == list(new)
    if old and not hasattr(old[0], "id"):
        return True
    return all(was is now or was.id == now.id for was, now in zip(old, new, strict=True))


def _key_entries(value: Any) -> list[tuple[str, Any]]:
    """Return the entries with their names: id, key, or else the index."""
    if isinstance(value, dict):
        return list(value.items())
    return [(getattr(entry, "id", f"#{i}"), entry) for i, entry in enumerate(value)]


def _add_entry(
    parts: list[Part], kind_and_section: tuple[PieceKind, str], key: str, value: Any, indent: int, style: Style
) -> None:
    """Append a new entry, before the empty lines at the end of the section."""
    kind, section = kind_and_section
    plain = to_plain(value)
    lines = (
        yaml_lines.item_lines(plain, "", indent, style)
        if kind is PieceKind.ITEM
        else yaml_lines.pair_lines(key, plain, indent, style)
    )
    text = _join_lines(lines, style)
    if parts and parts[-1].text.endswith(style.newline * 2):
        last = parts[-1]
        body = last.text.rstrip("\r\n") + style.newline
        short = parse_piece(Piece(last.kind, last.section, body))
        if short.value == last.value:
            parts[-1] = short
            text += last.text[len(body) :]
    added = parse_piece(Piece(kind, section, text))
    if added.value != from_plain(plain, type(value)):
        raise NeedsSlowPath("the new entry does not have the wanted value")
    parts.append(added)


def _change_entry(part: Part, old: Any, new: Any, style: Style) -> Part:
    """Return the part of one changed entry."""
    wanted = from_plain(to_plain(new), type(new))

    def check(text: str) -> list[Part]:
        changed = parse_piece(Piece(part.kind, part.section, text))
        if changed.key != part.key or changed.value != wanted:
            raise NeedsSlowPath("the entry does not have the wanted value")
        return [changed]

    was, now = to_plain(old), to_plain(new)
    if part.kind is PieceKind.ITEM:
        return _rewrite_and_check(part, [was], [now], SECTIONS[part.section], style, check)[0]
    key = next(iter(parse.parse_part(part.text, "")))
    return _rewrite_and_check(part, {key: was}, {key: now}, SECTIONS[part.section], style, check)[0]


def _rewrite_and_check(part: Part, old: Any, new: Any, kind: Any, style: Style, check: Any) -> list[Part]:
    """Replace the lines of a part, or else use ruamel's round trip. Raises NeedsSlowPath if both fail the check."""
    try:
        node = parse.parse_outline(part.text)
        offset = find_item_offset(node)
        editor = LineEditor(part.text, style if offset is None else Style(style.newline, offset))
        collect_edits(editor, node, old, new, kind)
        spliced: list[Part] = check(editor.apply_edits())
        return spliced
    except (NeedsSlowPath, Unparsable, msgspec.ValidationError):
        pass
    text = round_trip(part.text, old, new)
    if sorted_comments(text) != sorted_comments(part.text) or find_unknown_keys(text, kind) != find_unknown_keys(
        part.text, kind
    ):
        raise NeedsSlowPath("the round trip lost something")
    round_tripped: list[Part] = check(text)
    return round_tripped


def _change_whole(before: Document, after: State) -> Document:
    """Change the file as one part: replace its lines, or else use ruamel's round trip."""
    old, new = to_plain(before.state), to_plain(after)
    wanted = from_plain(new, State)
    for method in (_splice_whole, _round_trip_whole):
        try:
            changed = read_whole(method(before, old, new))
            if changed.state == wanted:
                return document.read_document(changed.text, previous=None if before.is_whole else before)
        except (NeedsSlowPath, Unparsable, BoardUnreadable):
            continue
    raise BoardInconsistent(
        f"the change cannot be written to {document.BOARD_NAME} without altering other lines; nothing was written",
        "liza edit",
    )


def _splice_whole(before: Document, old: Any, new: Any) -> str:
    node = parse.parse_outline(before.text)
    offset = find_item_offset(node)
    editor = LineEditor(before.text, Style(before.style.newline, 2 if offset is None else offset))
    collect_edits(editor, node, _with_typed_agents(node, old), _with_typed_agents(node, new), State)
    return editor.apply_edits()


def _with_typed_agents(node: parse.Node, plain: Any) -> Any:
    """Return the plain state with the agent names as in the text, which may be old ones such as reviewer-1."""
    renamed = dict(plain)
    for table in TABLE_SECTIONS & plain.keys() & node.pairs.keys():
        names = {normalize_scalar("agent", key): key for key in node.pairs[table][1].pairs}
        renamed[table] = {names.get(key, key): value for key, value in plain[table].items()}
    return renamed


def _round_trip_whole(before: Document, old: Any, new: Any) -> str:
    text = round_trip(before.text, old, new)
    if sorted_comments(text) != sorted_comments(before.text) or find_unknown_keys(text, State) != find_unknown_keys(
        before.text, State
    ):
        raise NeedsSlowPath("the round trip lost something")
    return text


def round_trip(text: str, old: Any, new: Any) -> str:
    """Return the text with the plain value ``old`` changed to ``new`` in ruamel's tree. Raises NeedsSlowPath."""
    yaml = YAML(typ="rt", pure=True)
    yaml.Resolver = _resolver_class()
    yaml.preserve_quotes = True
    yaml.width = 1 << 20
    yaml.allow_duplicate_keys = False
    yaml.explicit_start = text.lstrip("\ufeff").startswith("---")
    offset = find_item_offset(parse.parse_outline(text))
    offset = 2 if offset is None else offset
    yaml.indent(mapping=2, sequence=offset + 2, offset=offset)
    try:
        data = yaml.load(text.replace("\r\n", "\n"))
        data = _apply(data, old, new)
        out = io.StringIO(newline="")
        yaml.dump(data, out)
    except (YAMLError, TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise NeedsSlowPath(f"the round trip failed: {error}") from None
    dumped = out.getvalue() if text.endswith("\n") else out.getvalue().removesuffix("\n")
    return dumped.replace("\n", "\r\n") if "\r\n" in text else dumped


def _resolver_class() -> Any:
    """Return a resolver that keeps plain scalars as text: 12e4567 would be written back as infinity."""

    class Words(VersionedResolver):
        def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
            if kind is ScalarNode and implicit[0] and value not in NULLS:
                return self.DEFAULT_SCALAR_TAG
            return super().resolve(kind, value, implicit)

    return Words


def _apply(data: Any, old: Any, new: Any) -> Any:
    if isinstance(data, dict) and isinstance(new, dict):
        before = old if isinstance(old, dict) else {}
        for key in [*before, *(key for key in new if key not in before)]:
            was, now = before.get(key, ABSENT), new.get(key, ABSENT)
            if now is ABSENT:
                data.pop(key, None)
            elif was is ABSENT or was != now or type(was) is not type(now):
                data[key] = _apply(data[key], was, now) if was is not ABSENT and key in data else _to_ruamel(now)
        return data
    if isinstance(data, list) and isinstance(new, list) and isinstance(old, list) and len(data) == len(old):
        return _apply_list(data, old, new)
    return _to_ruamel(new)


def _apply_list(data: list[Any], old: list[Any], new: list[Any]) -> list[Any]:
    for i in range(min(len(old), len(new))):
        if old[i] != new[i]:
            data[i] = _apply(data[i], old[i], new[i])
    for _ in range(len(old) - len(new)):
        data.pop()
    for item in new[len(old) :]:
        data.append(_to_ruamel(item))
    return data


def _to_ruamel(value: Any) -> Any:
    """Return a plain value in ruamel's types, with strings quoted."""
    if isinstance(value, str):
        return DoubleQuotedScalarString(value)
    if isinstance(value, int | float):
        return PlainScalarString(yaml_lines.format_scalar(value))
    if isinstance(value, dict):
        return {key: _to_ruamel(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_to_ruamel(item) for item in value]
    return value


def find_unknown_keys(text: str, kind: Any) -> Any:
    """Return the values under keys that the model does not have, nested as in the text."""
    return _unknown_below(parse.parse_text(text), kind)


def _unknown_below(plain: Any, kind: Any) -> Any:
    if isinstance(plain, list):
        return [unknown for item in plain if (unknown := _unknown_below(item, kind))]
    if not isinstance(plain, dict):
        return None
    struct = find_struct(kind)
    if struct is None:
        return None
    if getattr(kind, "__origin__", None) is dict:
        return {key: unknown for key, item in plain.items() if (unknown := _unknown_below(item, struct))}
    fields = struct_fields(struct)
    unknown = {key: item for key, item in plain.items() if key not in fields}
    return unknown | {
        key: inner for key, item in plain.items() if key in fields and (inner := _unknown_below(item, fields[key]))
    }
