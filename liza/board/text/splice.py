"""Replacing the lines of what changed, and no others.

The outline says where values stand; edits are gathered first and carried out from the last line to the first.
Whatever does not fit raises Doubt, and the caller takes a slower way. Nothing here is trusted: the caller reads the
result back and compares it with what was wanted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from liza.board.text import yaml_lines
from liza.board.text.parse import NeedsSlowPath, Node, parse_outline
from liza.board.text.values import ABSENT, find_struct, struct_fields
from liza.board.text.yaml_lines import Style

_COMMENT: Final = re.compile(r"(?:^|(?<=\s))#.*")
_HEADER_COMMENT: Final = re.compile(r"[|>][-+0-9]*\s+(#.*)")
_BREAKS: Final = "\n\r\x85\u2028\u2029"
"""What the parsers count as the end of a line, also inside a comment or between quotes."""
_LINES: Final = re.compile(rf"[^{_BREAKS}]*(?:\r\n|[{_BREAKS}])|[^{_BREAKS}]+")


def iter_scalars(node: Node) -> Iterable[Node]:
    """Every scalar, alias and empty flow collection in the node, in the order of the text."""
    if node.kind == "map":
        for key, value in node.pairs.values():
            yield key
            yield from iter_scalars(value)
    elif node.kind == "seq":
        for item in node.items:
            yield from iter_scalars(item)
    else:
        yield node


def find_comments(lines: list[str], first: int, last: int, node: Node) -> dict[int, str]:
    """The comments on the lines from ``first`` to ``last``, by line: what stands outside every scalar of ``node``."""
    free: dict[int, int] = {}
    found: dict[int, str] = {}
    for leaf in iter_scalars(node):
        block = bool(leaf.style) and leaf.style in "|>"
        for line in range(leaf.line, leaf.end_line + 1):
            free[line] = 1 << 30 if block or line < leaf.end_line else max(free.get(line, 0), leaf.end_column)
        if block and (header := _HEADER_COMMENT.match(lines[leaf.line].rstrip(_BREAKS), leaf.column)):
            found[leaf.line] = header.group(1)
    for line in range(first, last + 1):
        text = lines[line].rstrip(_BREAKS)
        if "#" in text and (hit := _COMMENT.search(text, min(free.get(line, 0), len(text)))):
            found[line] = hit.group(0)
    return found


def sorted_comments(text: str) -> list[str]:
    """Every comment of a text, sorted: what must still be there after a change. Raises Unparsable, Doubt."""
    lines = _LINES.findall(text)
    return sorted(found.strip() for found in find_comments(lines, 0, len(lines) - 1, parse_outline(text)).values())


class LineEditor:
    """The lines of a text and the edits to them."""

    def __init__(self, text: str, style: Style) -> None:
        self.lines: list[str] = _LINES.findall(text)
        self.style = style
        self._edits: list[tuple[int, int, list[str]]] = []

    def replace_lines(self, first: int, after: int, lines: list[str]) -> None:
        """Lines ``first`` up to ``after`` become ``lines`` (without line endings)."""
        self._edits.append((first, after, lines))

    def apply_edits(self) -> str:
        """The text with every edit carried out."""
        lines, newline = list(self.lines), self.style.newline
        bare = bool(lines) and not lines[-1].endswith("\n")
        if bare:
            lines[-1] += newline
        previous = len(lines)
        for first, after, fresh in sorted(self._edits, key=lambda edit: edit[:2])[::-1]:
            if after > previous:
                raise NeedsSlowPath("two changes meet on one line")
            lines[first:after] = [line + newline for line in fresh]
            previous = first
        made = "".join(lines)
        return made.removesuffix(newline) if bare else made

    def line_text(self, line: int) -> str:
        """A line without its ending."""
        return self.lines[line].rstrip(_BREAKS)

    def comments_as_lines(self, first: int, last: int, node: Node, column: int) -> list[str]:
        """The comments of lines that go away, each as a line of its own."""
        found = find_comments(self.lines, first, last, node)
        return [" " * column + found[line] for line in sorted(found)]


def collect_edits(sheet: LineEditor, node: Node, old: Any, new: Any, kind: Any, key: str = "") -> None:
    """Gathers the edits that turn ``old`` into ``new`` below a block collection. Raises Doubt."""
    if isinstance(old, dict) and isinstance(new, dict) and node.kind == "map" and not node.flow:
        _change_mapping(sheet, node, old, new, kind)
    elif isinstance(old, list) and isinstance(new, list) and node.kind == "seq" and not node.flow:
        _change_sequence(sheet, node, old, new, kind, key)
    else:
        raise NeedsSlowPath("not a block collection")


def _change_mapping(sheet: LineEditor, node: Node, old: dict[str, Any], new: dict[str, Any], kind: Any) -> None:
    struct = find_struct(kind)
    known = struct_fields(struct) if struct is not None and not _is_table(kind) else {}
    order = [*known, *(key for key in [*old, *new] if key not in known)]
    for key in dict.fromkeys(order):
        before, after = old.get(key, ABSENT), new.get(key, ABSENT)
        if before is after or (before == after and type(before) is type(after)):
            continue
        inner = known.get(key, kind if struct is not None else None)
        if after is ABSENT:
            _remove(sheet, node, key)
        elif key in node.pairs:
            _change_value(sheet, node, key, before, after, inner)
        else:
            _insert(sheet, node, key, after, order)


def _is_table(kind: Any) -> bool:
    return getattr(kind, "__origin__", None) is dict


def _remove(sheet: LineEditor, node: Node, key: str) -> None:
    if key not in node.pairs:
        raise NeedsSlowPath("a value that stands nowhere")
    name, value = node.pairs[key]
    if sheet.line_text(name.line)[: name.column].strip():
        raise NeedsSlowPath("the first key of an item goes away")
    last = max(value.end_line, name.end_line)
    sheet.replace_lines(name.line, last + 1, sheet.comments_as_lines(name.line, last, value, name.column))


def _insert(sheet: LineEditor, node: Node, key: str, value: Any, order: list[str]) -> None:
    """After the nearest key that the model names earlier; else after the first."""
    if not node.pairs:
        raise NeedsSlowPath("an empty mapping has no place for a key")
    earlier = [name for name in order[: order.index(key)] if name in node.pairs]
    name, beside = node.pairs[earlier[-1] if earlier else next(iter(node.pairs))]
    place = max(name.end_line, beside.end_line) + 1
    sheet.replace_lines(place, place, yaml_lines.pair_lines(key, value, name.column, sheet.style))


def _change_value(sheet: LineEditor, node: Node, key: str, old: Any, new: Any, kind: Any) -> None:
    name, value = node.pairs[key]
    same_shape = (isinstance(new, dict) and value.kind == "map") or (isinstance(new, list) and value.kind == "seq")
    if same_shape and not value.flow and type(old) is type(new):
        collect_edits(sheet, value, old, new, kind, key)
        return
    if value.flow and _has_mapping(value):
        _change_flow_mapping(sheet, name, value, key, old, new)
        return
    inline = value.kind == "seq" and value.flow and bool(value.items) and _is_scalar_list(new)
    if value.end_line == name.line and (inline or yaml_lines.is_inline(new)):
        written = (
            yaml_lines.format_flow_list(new, key)
            if inline
            else yaml_lines.value_lines(new, key, 0, sheet.style)[0].lstrip()
        )
        line = sheet.line_text(name.line)
        head, tail = line[: value.column], line[value.end_column :]
        gap = "" if head.endswith((" ", "\t")) else " "
        sheet.replace_lines(name.line, name.line + 1, [f"{head}{gap}{written}{tail}"])
        return
    _replace_value(sheet, name, value, key, new)


def _change_flow_mapping(sheet: LineEditor, name: Node, value: Node, key: str, old: Any, new: Any) -> None:
    """A mapping between braces on the line of its key, of which every part is Liza's own. Raises Doubt for others."""
    line = yaml_lines.format_flow_mapping(new, key) if isinstance(old, dict) and isinstance(new, dict) else None
    own = value.kind == "map" and set(value.pairs) == set(old) and value.end_line == name.line
    plain = all(part.kind == "scalar" and not part.anchored for pair in value.pairs.values() for part in pair)
    if line is None or not own or not plain or value.anchored:
        raise NeedsSlowPath("a mapping between braces")
    typed = sheet.line_text(name.line)
    sheet.replace_lines(name.line, name.line + 1, [typed[: value.column] + line + typed[value.end_column :]])


def _has_mapping(node: Node) -> bool:
    return bool(node.pairs) or any(_has_mapping(item) for item in node.items)


def _is_scalar_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and not any(isinstance(item, dict | list) for item in value)


def _replace_value(sheet: LineEditor, name: Node, value: Node, key: str, new: Any) -> None:
    """All lines of a key and its value, old or new, being several."""
    line = sheet.line_text(name.line)
    colon = line.index(":", name.end_column)
    found = find_comments(sheet.lines, name.line, value.end_line, value)
    first, *rest = yaml_lines.value_lines(new, key, name.column, sheet.style)
    own = found.pop(name.line, None)
    head = line[: colon + 1] + first + (f"  {own}" if own else "")
    kept = [" " * name.column + found[number] for number in sorted(found)]
    if kept and line[: name.column].strip():
        raise NeedsSlowPath("comments inside the first key of an item")
    sheet.replace_lines(name.line, value.end_line + 1, [*kept, head, *rest])


def _same_item(old: Any, new: Any) -> bool:
    return old == new or (isinstance(old, dict) and isinstance(new, dict) and old.get("id") == new.get("id"))


def _change_sequence(sheet: LineEditor, node: Node, old: list[Any], new: list[Any], kind: Any, key: str) -> None:
    if len(node.items) != len(old) or not node.items:
        raise NeedsSlowPath("the text has other items than the model")
    start = 0
    while start < min(len(old), len(new)) and _same_item(old[start], new[start]):
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and _same_item(old[-1 - end], new[-1 - end]):
        end += 1
    kept = [(i, i) for i in range(start)] + [(len(old) - k, len(new) - k) for k in range(end, 0, -1)]
    for i, j in kept:
        if old[i] != new[j]:
            collect_edits(sheet, node.items[i], old[i], new[j], find_struct(kind))
    _replace_items(sheet, node, range(start, len(old) - end), new[start : len(new) - end], key)


def _replace_items(sheet: LineEditor, node: Node, gone: range, fresh: list[Any], key: str) -> None:
    """Items ``gone`` leave, ``fresh`` ones come in their place."""
    column = node.column
    for item in node.items[gone.start : gone.stop]:
        if not re.fullmatch(r" *-\s+", sheet.line_text(item.line)[: item.column].ljust(column + 2)):
            raise NeedsSlowPath("an item that does not stand on the line of its dash")
    if not gone and not fresh:
        return
    lines = yaml_lines.sequence_lines(fresh, key, column, sheet.style)
    if gone:
        first, last = node.items[gone[0]].line, node.items[gone[-1]].end_line
        kept = [found for i in gone for found in _item_comments(sheet, node.items[i], column)]
        sheet.replace_lines(first, last + 1, [*kept, *lines])
    else:
        place = node.items[gone.start - 1].end_line + 1 if gone.start else node.items[0].line
        sheet.replace_lines(place, place, lines)


def _item_comments(sheet: LineEditor, item: Node, column: int) -> list[str]:
    return sheet.comments_as_lines(item.line, item.end_line, item, column)


def find_item_offset(node: Node) -> int | None:
    """How far items stand right of their key, where the text shows it."""
    for name, value in node.pairs.values():
        if value.kind == "seq" and not value.flow and value.items:
            return value.column - name.column
        if (found := find_item_offset(value)) is not None:
            return found
    return next((found for item in node.items if (found := find_item_offset(item)) is not None), None)
