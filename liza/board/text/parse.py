"""Parse YAML text to plain values and to outlines.

`plain_form` reads the value of a part in the form in which Liza writes, `machine_form` makes the events of such a text.
For other texts ruamel is imported: its C parser, and the pure Python one if C fails.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar

from liza.board.text import machine_form, plain_form
from liza.board.text.values import FREE_FORM_KEYS, NULLS, normalize_scalar, parse_plain_scalar
from liza.rules.value_classes import Mutable, field

if TYPE_CHECKING:
    from ruamel.yaml.error import YAMLError

_MAX_DEPTH: Final = 48
"""Maximum nesting of collections: functions that walk a value recurse."""
_MAX_PURE_TEXT: Final = 1 << 20
"""Maximum length of a text for the pure parser, in characters: it takes some seconds for that."""
_MAX_ALIASED_VALUES: Final = 100_000
"""Maximum number of values that all aliases of one text expand to."""

_MAX_MACHINE_TEXT: Final = 1 << 17
"""Number of characters that one process parses without ruamel. The C parser is faster, but its import takes longer than
it saves for such a text."""

T = TypeVar("T")


class Unparsable(Exception):
    """The text is not YAML, or YAML that a board may not contain. Lines and columns count from 1."""

    def __init__(self, reason: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {reason}")
        self.reason, self.line, self.column = reason, line, column


class NeedsSlowPath(Exception):
    """The fast method is not certain for this text; the caller uses a slower one."""


class _Events(Mutable, eq=False):
    """The events of a text: ``following`` returns the next one, ``kinds`` is the module with their classes."""

    following: Callable[[], Any]
    kinds: Any


def _error_at(event: Any, reason: str) -> Unparsable:
    return Unparsable(reason, event.start_mark.line + 1, event.start_mark.column + 1)


def _scalar(event: Any, key: str, free: bool) -> Any:
    text = event.value
    if event.implicit[0] and not event.style:
        if text in NULLS:
            return None
        if free:
            return parse_plain_scalar(text)
    return text if free else normalize_scalar(key, text)


class _PlainBuilder:
    """Build plain values from parser events. Keys with the value null are left out of mappings."""

    def __init__(self, events: _Events, alone: bool) -> None:
        self._next = events.following
        kinds = events.kinds
        self._alias_kind, self._scalar_kind = kinds.AliasEvent, kinds.ScalarEvent
        self._mapping_kind, self._mapping_end_kind = kinds.MappingStartEvent, kinds.MappingEndEvent
        self._sequence_end_kind = kinds.SequenceEndEvent
        self._is_part = alone
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._depth = self._size = self._aliased = 0

    def value(self, event: Any, key: str, free: bool) -> Any:
        kind = type(event)
        if kind is self._scalar_kind and event.anchor is None:
            return _scalar(event, key, free)
        if self._is_part and (kind is self._alias_kind or event.anchor is not None):
            raise NeedsSlowPath("anchors and aliases reach beyond an entry")
        if kind is self._alias_kind:
            return self._alias(event)
        before = self._size
        built = _scalar(event, key, free) if kind is self._scalar_kind else self._collection(event, key, free)
        self._size += 1
        if event.anchor is not None:
            self._anchors[event.anchor] = built, self._size - before
        return built

    def _alias(self, event: Any) -> Any:
        """Return the value of an alias. Raises Unparsable above the limit: nested aliases grow exponentially."""
        if event.anchor not in self._anchors:
            raise _error_at(event, f"unknown anchor {event.anchor}")
        value, size = self._anchors[event.anchor]
        self._size += size
        self._aliased += size
        if self._aliased > _MAX_ALIASED_VALUES:
            raise _error_at(event, f"aliases that expand to more than {_MAX_ALIASED_VALUES} values")
        return value

    def _collection(self, event: Any, key: str, free: bool) -> Any:
        if self._depth == _MAX_DEPTH:
            raise _error_at(event, "nested too deeply")
        self._depth += 1
        value = self._mapping(key, free) if type(event) is self._mapping_kind else self._sequence(key, free)
        self._depth -= 1
        return value

    def _mapping(self, key: str, free: bool) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        seen = set()
        following, end_kind, scalar_kind = self._next, self._mapping_end_kind, self._scalar_kind
        free = free or key in FREE_FORM_KEYS
        while type(event := following()) is not end_kind:
            if type(event) is not scalar_kind:
                raise _error_at(event, "a key that is not a scalar")
            name = event.value
            if name in seen:
                raise _error_at(event, f"the key {name!r} occurs twice")
            seen.add(name)
            value = self.value(following(), name, free)
            if name == "<<" and not event.style:
                _merge_keys(mapping, value)
            elif value is not None or free:
                mapping[name] = value
        return mapping

    def _sequence(self, key: str, free: bool) -> list[Any]:
        items = []
        following, end_kind = self._next, self._sequence_end_kind
        while type(event := following()) is not end_kind:
            items.append(self.value(event, key, free))
        return items


def _merge_keys(mapping: dict[str, Any], merged: Any) -> None:
    for source in merged if isinstance(merged, list) else [merged]:
        if isinstance(source, dict):
            for key, value in source.items():
                mapping.setdefault(key, value)


def _first_event(events: _Events, alone: bool) -> Any:
    """Return the first event of the document, None if the text has no values."""
    events.following()
    event = events.following()
    if type(event) is events.kinds.StreamEndEvent:
        return None
    if alone and type(event) is events.kinds.DocumentStartEvent and event.explicit:
        raise NeedsSlowPath("a document marker inside an entry")
    return events.following()


def _expect_end(events: _Events, alone: bool) -> None:
    events.following()
    event = events.following()
    if type(event) is not events.kinds.StreamEndEvent:
        if alone:
            raise NeedsSlowPath("more than one document")
        raise _error_at(event, "more than one document")


def _parse(text: str, ask: Callable[[_Events], T]) -> T:
    """Return ``ask`` of the events of a text. Raises Unparsable."""
    if "_ruamel_yaml" not in sys.modules and (events := _list_machine_events(text)) is not None:
        return ask(_Events(iter(events).__next__, machine_form))
    return _parse_with_library(text, ask)


_machine_text = 0


def _list_machine_events(text: str) -> list[Any] | None:
    """Return the events of a text that is in the form in which Liza writes; None for others, and if there was much."""
    global _machine_text
    _machine_text += len(text)
    if _machine_text > _MAX_MACHINE_TEXT:
        return None
    try:
        return machine_form.list_events(text)
    except machine_form.NotMachineForm:
        return None


def _parse_with_library(text: str, ask: Callable[[_Events], T]) -> T:
    """Return ``ask`` of the C parser's events, or of the pure parser's if C fails. Raises Unparsable."""
    from liza.board.text import yaml_library

    try:
        return ask(_Events(yaml_library.c_parser(text), yaml_library.events))
    except yaml_library.YAMLError as refused:
        if len(text) > _MAX_PURE_TEXT:
            raise _to_unparsable(refused) from None
    except RecursionError:
        raise Unparsable("nested too deeply", 1, 1) from None
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start)
        column = error.start - text.rfind("\n", 0, error.start)
        raise Unparsable("a lone surrogate, which UTF-8 cannot encode", line + 1, column) from None
    try:
        return ask(_Events(yaml_library.pure_parser(text), yaml_library.events))
    except yaml_library.YAMLError as error:
        raise _to_unparsable(error) from None
    except (RecursionError, ValueError, ArithmeticError) as error:
        # The pure parser recurses with the depth of the text, and fails on escapes that are no valid code points.
        raise Unparsable(f"not YAML: {type(error).__name__}", 1, 1) from None


def _to_unparsable(error: YAMLError) -> Unparsable:
    from liza.board.text.yaml_library import MarkedYAMLError

    if not isinstance(error, MarkedYAMLError):
        return Unparsable(" ".join(str(error).split()), 1, 1)
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    return Unparsable(error.problem or error.context or "not YAML", line, column)


_SURROGATES: Final = re.compile(r"(?i)(?<!\\)((?:\\\\)*)\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})")


def join_surrogates(text: str) -> str:
    """Return a text in JSON with characters in place of pairs of escapes as ``\\ud83d\\ude00``, which YAML refuses."""
    if not text.lstrip().startswith("{"):
        return text
    return _SURROGATES.sub(lambda match: match[1] + bytes.fromhex(match[2] + match[3]).decode("utf-16-be"), text)


def parse_text(text: str) -> Any:
    """Return the plain value of a text: scalars as written, nulls left out. Raises Unparsable."""
    text = join_surrogates(text)

    def ask(events: _Events) -> Any:
        event = _first_event(events, alone=False)
        if event is None:
            return None
        value = _PlainBuilder(events, alone=False).value(event, "", False)
        _expect_end(events, alone=False)
        return value

    return _parse(text, ask)


def parse_part(text: str, key: str) -> Any:
    """Return the plain value of one part of a file, below ``key``.

    Raises Unparsable, and NeedsSlowPath if the part cannot be read without the rest of the file.
    """
    try:
        return plain_form.read_plain(text, key)
    except machine_form.NotMachineForm:
        return parse_part_by_events(text, key)


def parse_part_by_events(text: str, key: str) -> Any:
    """As ``parse_part``, for a text in any form."""

    def ask(events: _Events) -> Any:
        event = _first_event(events, alone=True)
        if event is None:
            return None
        value = _PlainBuilder(events, alone=True).value(event, key, False)
        _expect_end(events, alone=True)
        return value

    return _parse(text, ask)


class NodeKind(StrEnum):
    """Kind of a YAML value."""

    SCALAR = "scalar"
    MAP = "map"
    SEQ = "seq"
    ALIAS = "alias"


class Node(Mutable):
    """The position of a value: lines and columns from 0, the end column exclusive."""

    kind: NodeKind
    line: int
    column: int
    end_line: int
    end_column: int
    flow: bool = False
    style: str = ""
    value: str = ""
    pairs: dict[str, tuple[Node, Node]] = field(default_factory=dict)
    items: list[Node] = field(default_factory=list)
    anchored: bool = False


def parse_outline(text: str) -> Node:
    """Return the positions of all values of a text. Raises Unparsable, NeedsSlowPath if it has no simple outline."""

    def ask(events: _Events) -> Node:
        event = _first_event(events, alone=False)
        if event is None:
            raise NeedsSlowPath("empty")
        return _node(event, events, 0)

    return _parse(text, ask)


def _node(event: Any, events: _Events, depth: int) -> Node:
    if depth > _MAX_DEPTH:
        raise _error_at(event, "nested too deeply")
    start, end = event.start_mark, event.end_mark
    anchored = getattr(event, "anchor", None) is not None
    kind, kinds, following = type(event), events.kinds, events.following
    if kind is kinds.AliasEvent:
        return Node(NodeKind.ALIAS, start.line, start.column, end.line, end.column, anchored=True)
    if kind is kinds.ScalarEvent:
        node = Node(NodeKind.SCALAR, start.line, start.column, end.line, end.column, style=event.style or "")
        node.value, node.anchored = event.value, anchored
        if node.style and node.style in "|>" and end.column == 0 and end.line > start.line:
            node.end_line, node.end_column = end.line - 1, 1 << 30
        return node
    flow = bool(event.flow_style)
    if kind is kinds.MappingStartEvent:
        node = Node(NodeKind.MAP, start.line, start.column, start.line, start.column, flow, anchored=anchored)
        while type(event := following()) is not kinds.MappingEndEvent:
            key = _node(event, events, depth + 1)
            if key.kind is not NodeKind.SCALAR or key.value in node.pairs:
                raise NeedsSlowPath("a key that is not a scalar, or occurs twice")
            value = _node(following(), events, depth + 1)
            node.pairs[key.value] = (key, value)
        return _set_end(node, [child for pair in node.pairs.values() for child in pair], event)
    node = Node(NodeKind.SEQ, start.line, start.column, start.line, start.column, flow, anchored=anchored)
    while type(event := following()) is not kinds.SequenceEndEvent:
        node.items.append(_node(event, events, depth + 1))
    return _set_end(node, node.items, event)


def _set_end(node: Node, children: list[Node], event: Any) -> Node:
    """Set the end: of a flow collection at its bracket, of a block collection at its last value."""
    if node.flow:
        node.end_line, node.end_column = event.end_mark.line, event.end_mark.column
    else:
        last = max(children, key=lambda child: (child.end_line, child.end_column), default=node)
        node.end_line, node.end_column = last.end_line, last.end_column
    return node


def locate_error(text: str, message: str) -> str:
    """Return ``line:column:`` of a validation error ``message``, as far as its path can be followed in the text."""
    path = message.rpartition(" - at `$.")[2].rstrip("`") if " - at `$." in message else ""
    try:
        node = parse_outline(text)
    except (NeedsSlowPath, Unparsable):
        return "1:1:"
    for word in re.findall(r"\w[\w-]*|\[(?:\d+|\.\.\.)\]", path):
        if word.startswith("[") and word[1:-1].isdecimal() and int(word[1:-1]) < len(node.items):
            node = node.items[int(word[1:-1])]
        elif word in node.pairs:
            node = node.pairs[word][1]
        else:
            break
    return f"{node.line + 1}:{node.column + 1}:"
