"""Replace the lines of changed values, and no others.

The outline has the position of each value. Edits are collected first, then applied from the last line to the first.
Text that does not fit raises NeedsSlowPath, and the caller uses a slower method. The caller also parses the result
again and compares it with the wanted value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from liza.board.text import yaml_lines
from liza.board.text.parse import NeedsSlowPath, Node, NodeKind, parse_outline
from liza.board.text.values import ABSENT, find_struct, struct_fields
from liza.board.text.yaml_lines import Style

_COMMENT: Final = re.compile(r"(?:^|(?<=\s))#.*")
_HEADER_COMMENT: Final = re.compile(r"[|>][-+0-9]*\s+(#.*)")
_BREAKS: Final = "\n\r\x85\u2028\u2029"
"""Characters that the parsers count as the end of a line, also inside comments and quotes."""
_LINES: Final = re.compile(rf"[^{_BREAKS}]*(?:\r\n|[{_BREAKS}])|[^{_BREAKS}]+")


def iter_scalars(node: Node) -> Iterable[Node]:
    """Yield the scalars and aliases of the node, in the order of the text."""
    if node.kind is NodeKind.MAP:
        for key, value in node.pairs.values():
            yield key
            yield from iter_scalars(value)
    elif node.kind is NodeKind.SEQ:
        for item in node.items:
            yield from iter_scalars(item)
    else:
        yield node


def find_comments(lines: list[str], first: int, last: int, node: Node) -> dict[int, str]:
    """Return the comments on the lines ``first`` to ``last``, by line, outside of the scalars of ``node``."""
    scalar_ends: dict[int, int] = {}
    comments: dict[int, str] = {}
    for leaf in iter_scalars(node):
        block = bool(leaf.style) and leaf.style in "|>"
        for line in range(leaf.line, leaf.end_line + 1):
            scalar_ends[line] = (
                1 << 30 if block or line < leaf.end_line else max(scalar_ends.get(line, 0), leaf.end_column)
            )
        if block and (header := _HEADER_COMMENT.match(lines[leaf.line].rstrip(_BREAKS), leaf.column)):
            comments[leaf.line] = header.group(1)
    for line in range(first, last + 1):
        text = lines[line].rstrip(_BREAKS)
        if "#" in text and (match := _COMMENT.search(text, min(scalar_ends.get(line, 0), len(text)))):
            comments[line] = match.group(0)
    return comments


def sorted_comments(text: str) -> list[str]:
    """Return all comments of a text, sorted; a change must keep them. Raises Unparsable, NeedsSlowPath."""
    lines = _LINES.findall(text)
    return sorted(comment.strip() for comment in find_comments(lines, 0, len(lines) - 1, parse_outline(text)).values())


class LineEditor:
    """The lines of a text, and the edits to them."""

    def __init__(self, text: str, style: Style) -> None:
        self.lines: list[str] = _LINES.findall(text)
        self.style = style
        self._edits: list[tuple[int, int, list[str]]] = []

    def replace_lines(self, first: int, after: int, lines: list[str]) -> None:
        """Record that the lines ``first`` to ``after`` (exclusive) become ``lines``, given without line endings."""
        self._edits.append((first, after, lines))

    def apply_edits(self) -> str:
        """Return the text with all edits applied. Raises NeedsSlowPath if two edits overlap."""
        lines, newline = list(self.lines), self.style.newline
        lacks_newline = bool(lines) and not lines[-1].endswith("\n")
        if lacks_newline:
            lines[-1] += newline
        previous = len(lines)
        for first, after, new_lines in sorted(self._edits, key=lambda edit: edit[:2])[::-1]:
            if after > previous:
                raise NeedsSlowPath("two changes meet on one line")
            lines[first:after] = [line + newline for line in new_lines]
            previous = first
        edited = "".join(lines)
        return edited.removesuffix(newline) if lacks_newline else edited

    def line_text(self, line: int) -> str:
        """Return a line without its ending."""
        return self.lines[line].rstrip(_BREAKS)

    def comments_as_lines(self, first: int, last: int, node: Node, column: int) -> list[str]:
        """Return the comments of removed lines, each as a line of its own."""
        comments = find_comments(self.lines, first, last, node)
        return [" " * column + comments[line] for line in sorted(comments)]


def collect_edits(editor: LineEditor, node: Node, old: Any, new: Any, kind: Any, key: str = "") -> None:
    """Collect the edits that change ``old`` to ``new`` in a block collection. Raises NeedsSlowPath."""
    if isinstance(old, dict) and isinstance(new, dict) and node.kind is NodeKind.MAP and not node.flow:
        _change_mapping(editor, node, old, new, kind)
    elif isinstance(old, list) and isinstance(new, list) and node.kind is NodeKind.SEQ and not node.flow:
        _change_sequence(editor, node, old, new, kind, key)
    else:
        raise NeedsSlowPath("not a block collection")


def _change_mapping(editor: LineEditor, node: Node, old: dict[str, Any], new: dict[str, Any], kind: Any) -> None:
    struct = find_struct(kind)
    fields = struct_fields(struct) if struct is not None and not _is_table(kind) else {}
    order = [*fields, *(key for key in [*old, *new] if key not in fields)]
    for key in dict.fromkeys(order):
        before, after = old.get(key, ABSENT), new.get(key, ABSENT)
        if before is after or (before == after and type(before) is type(after)):
            continue
        inner = fields.get(key, kind if struct is not None else None)
        if after is ABSENT:
            _remove(editor, node, key)
        elif key in node.pairs:
            _change_value(editor, node, key, before, after, inner)
        else:
            _insert(editor, node, key, after, order)


def _is_table(kind: Any) -> bool:
    return getattr(kind, "__origin__", None) is dict


def _remove(editor: LineEditor, node: Node, key: str) -> None:
    if key not in node.pairs:
        raise NeedsSlowPath("a value that is not in the text")
    name, value = node.pairs[key]
    if editor.line_text(name.line)[: name.column].strip():
        raise NeedsSlowPath("the first key of an item is removed")
    last = max(value.end_line, name.end_line)
    editor.replace_lines(name.line, last + 1, editor.comments_as_lines(name.line, last, value, name.column))


def _insert(editor: LineEditor, node: Node, key: str, value: Any, order: list[str]) -> None:
    """Insert a key after the nearest key that is earlier in the model; else after the first key."""
    if not node.pairs:
        raise NeedsSlowPath("an empty mapping, which has no indentation for a new key")
    earlier = [name for name in order[: order.index(key)] if name in node.pairs]
    name, beside = node.pairs[earlier[-1] if earlier else next(iter(node.pairs))]
    index = max(name.end_line, beside.end_line) + 1
    editor.replace_lines(index, index, yaml_lines.pair_lines(key, value, name.column, editor.style))


def _change_value(editor: LineEditor, node: Node, key: str, old: Any, new: Any, kind: Any) -> None:
    name, value = node.pairs[key]
    same_shape = (isinstance(new, dict) and value.kind is NodeKind.MAP) or (
        isinstance(new, list) and value.kind is NodeKind.SEQ
    )
    if same_shape and not value.flow and type(old) is type(new):
        collect_edits(editor, value, old, new, kind, key)
        return
    if value.flow and _has_mapping(value):
        _change_flow_mapping(editor, name, value, key, old, new)
        return
    inline = value.kind is NodeKind.SEQ and value.flow and bool(value.items) and _is_scalar_list(new)
    if value.end_line == name.line and (inline or yaml_lines.is_inline(new)):
        written = (
            yaml_lines.format_flow_list(new, key)
            if inline
            else yaml_lines.value_lines(new, key, 0, editor.style)[0].lstrip()
        )
        line = editor.line_text(name.line)
        head, tail = line[: value.column], line[value.end_column :]
        gap = "" if head.endswith((" ", "\t")) else " "
        editor.replace_lines(name.line, name.line + 1, [f"{head}{gap}{written}{tail}"])
        return
    _replace_value(editor, name, value, key, new)


def _change_flow_mapping(editor: LineEditor, name: Node, value: Node, key: str, old: Any, new: Any) -> None:
    """Rewrite a mapping in braces on the line of its key. Raises NeedsSlowPath unless Liza wrote all of it."""
    mapping = yaml_lines.format_flow_mapping(new, key) if isinstance(old, dict) and isinstance(new, dict) else None
    same_keys = value.kind is NodeKind.MAP and set(value.pairs) == set(old) and value.end_line == name.line
    plain = all(part.kind is NodeKind.SCALAR and not part.anchored for pair in value.pairs.values() for part in pair)
    if mapping is None or not same_keys or not plain or value.anchored:
        raise NeedsSlowPath("a mapping between braces")
    old_line = editor.line_text(name.line)
    editor.replace_lines(name.line, name.line + 1, [old_line[: value.column] + mapping + old_line[value.end_column :]])


def _has_mapping(node: Node) -> bool:
    return bool(node.pairs) or any(_has_mapping(item) for item in node.items)


def _is_scalar_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and not any(isinstance(item, dict | list) for item in value)


def _replace_value(editor: LineEditor, name: Node, value: Node, key: str, new: Any) -> None:
    """Replace all lines of a key and its value; the old or the new value has several lines."""
    line = editor.line_text(name.line)
    colon = line.find(":", name.end_column)
    if colon < 0:
        raise NeedsSlowPath("a key that is marked with ? has its colon on another line")
    comments = find_comments(editor.lines, name.line, value.end_line, value)
    first, *rest = yaml_lines.value_lines(new, key, name.column, editor.style)
    own = comments.pop(name.line, None)
    head = line[: colon + 1] + first + (f"  {own}" if own else "")
    kept = [" " * name.column + comments[number] for number in sorted(comments)]
    if kept and line[: name.column].strip():
        raise NeedsSlowPath("comments inside the first key of an item")
    editor.replace_lines(name.line, value.end_line + 1, [*kept, head, *rest])


def _same_item(old: Any, new: Any) -> bool:
    return old == new or (isinstance(old, dict) and isinstance(new, dict) and old.get("id") == new.get("id"))


def _change_sequence(editor: LineEditor, node: Node, old: list[Any], new: list[Any], kind: Any, key: str) -> None:
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
            collect_edits(editor, node.items[i], old[i], new[j], find_struct(kind))
    _replace_items(editor, node, range(start, len(old) - end), new[start : len(new) - end], key)


def _replace_items(editor: LineEditor, node: Node, removed: range, added: list[Any], key: str) -> None:
    """Replace the items with the indexes ``removed`` by the items ``added``."""
    column = node.column
    for item in node.items[removed.start : removed.stop]:
        if not re.fullmatch(r" *-\s+", editor.line_text(item.line)[: item.column].ljust(column + 2)):
            raise NeedsSlowPath("an item that is not on the line of its dash")
    if not removed and not added:
        return
    lines = yaml_lines.sequence_lines(added, key, column, editor.style)
    if removed:
        first, last = node.items[removed[0]].line, node.items[removed[-1]].end_line
        kept = [comment for i in removed for comment in _item_comments(editor, node.items[i], column)]
        editor.replace_lines(first, last + 1, [*kept, *lines])
    else:
        index = node.items[removed.start - 1].end_line + 1 if removed.start else node.items[0].line
        editor.replace_lines(index, index, lines)


def _item_comments(editor: LineEditor, item: Node, column: int) -> list[str]:
    return editor.comments_as_lines(item.line, item.end_line, item, column)


def find_item_offset(node: Node) -> int | None:
    """Return the indentation of items relative to their key; None if the text has no block sequence with items."""
    for name, value in node.pairs.values():
        if value.kind is NodeKind.SEQ and not value.flow and value.items:
            return value.column - name.column
        if (offset := find_item_offset(value)) is not None:
            return offset
    return next((offset for item in node.items if (offset := find_item_offset(item)) is not None), None)
