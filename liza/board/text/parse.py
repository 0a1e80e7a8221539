"""Parse YAML text to plain values and to outlines, from the events of ruamel.

ruamel's C parser reads a text; its pure Python one reads what C refuses. Decision 021.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, TypeVar

from _ruamel_yaml import CParser  # type: ignore[import-not-found]
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    StreamEndEvent,
)

from liza.board.text.values import FREE_FORM_KEYS, NULLS, normalize_scalar, parse_plain_scalar
from liza.model.value_classes import Mutable, field

_MAX_DEPTH: Final = 48
"""Maximum nesting of collections: functions that walk a value recurse."""
_MAX_PURE_TEXT: Final = 1 << 20
"""Maximum length of a text for the pure parser, in characters: it takes some seconds for that."""
_MAX_ALIASED_VALUES: Final = 100_000
"""Maximum number of values that all aliases of one text expand to."""


T = TypeVar("T")


class Unparsable(Exception):
    """The text is not YAML, or YAML that a board may not contain. Lines and columns count from 1."""

    def __init__(self, reason: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {reason}")
        self.reason, self.line, self.column = reason, line, column


class NeedsSlowPath(Exception):
    """The fast method is not certain for this text; the caller uses a slower one."""


NextEvent = Callable[[], Any]
"""Returns the next event of a text."""


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

    def __init__(self, following: NextEvent, alone: bool) -> None:
        self._next = following
        self._is_part = alone
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._depth = self._size = self._aliased = 0

    def value(self, event: Any, key: str, free: bool) -> Any:
        kind = type(event)
        if kind is ScalarEvent and event.anchor is None:
            return _scalar(event, key, free)
        if self._is_part and (kind is AliasEvent or event.anchor is not None):
            raise NeedsSlowPath("anchors and aliases reach beyond an entry")
        if kind is AliasEvent:
            return self._alias(event)
        before = self._size
        built = _scalar(event, key, free) if kind is ScalarEvent else self._collection(event, key, free)
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
        value = self._mapping(key, free) if type(event) is MappingStartEvent else self._sequence(key, free)
        self._depth -= 1
        return value

    def _mapping(self, key: str, free: bool) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        seen = set()
        following = self._next
        free = free or key in FREE_FORM_KEYS
        while type(event := following()) is not MappingEndEvent:
            if type(event) is not ScalarEvent:
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
        following = self._next
        while type(event := following()) is not SequenceEndEvent:
            items.append(self.value(event, key, free))
        return items


def _merge_keys(mapping: dict[str, Any], merged: Any) -> None:
    for source in merged if isinstance(merged, list) else [merged]:
        if isinstance(source, dict):
            for key, value in source.items():
                mapping.setdefault(key, value)


def _first_event(following: NextEvent, alone: bool) -> Any:
    """Return the first event of the document, None if the text has no values."""
    following()
    event = following()
    if type(event) is StreamEndEvent:
        return None
    if alone and type(event) is DocumentStartEvent and event.explicit:
        raise NeedsSlowPath("a document marker inside an entry")
    return following()


def _expect_end(following: NextEvent, alone: bool) -> None:
    following()
    event = following()
    if type(event) is not StreamEndEvent:
        if alone:
            raise NeedsSlowPath("more than one document")
        raise _error_at(event, "more than one document")


def _parse(text: str, ask: Callable[[NextEvent], T]) -> T:
    """Return ``ask`` of the C parser's events, or of the pure parser's if C fails. Raises Unparsable."""
    try:
        return ask(CParser(text).get_event)
    except YAMLError as refused:
        if len(text) > _MAX_PURE_TEXT:
            raise _to_unparsable(refused) from None
    except RecursionError:
        raise Unparsable("nested too deeply", 1, 1) from None
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start)
        column = error.start - text.rfind("\n", 0, error.start)
        raise Unparsable("a lone surrogate, which UTF-8 cannot encode", line + 1, column) from None
    try:
        return ask(_pure_parser(text))
    except YAMLError as error:
        raise _to_unparsable(error) from None
    except (RecursionError, ValueError, ArithmeticError) as error:
        # The pure parser recurses with the depth of the text, and fails on escapes that are no valid code points.
        raise Unparsable(f"not YAML: {type(error).__name__}", 1, 1) from None


def _pure_parser(text: str) -> NextEvent:
    """Return a function that returns the next event of the pure Python parser."""
    iterator = YAML(typ="safe", pure=True).parse(text)

    def following() -> Any:
        event = next(iterator)
        if isinstance(event, ScalarEvent):
            # Raise UnicodeEncodeError for a lone surrogate, also if escaped, as the C parser does.
            event.value.encode()
        return event

    return following


def _to_unparsable(error: YAMLError) -> Unparsable:
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

    def ask(following: NextEvent) -> Any:
        event = _first_event(following, alone=False)
        if event is None:
            return None
        value = _PlainBuilder(following, alone=False).value(event, "", False)
        _expect_end(following, alone=False)
        return value

    return _parse(text, ask)


def parse_part(text: str, key: str) -> Any:
    """Return the plain value of one part of a file, below ``key``.

    Raises Unparsable, and NeedsSlowPath if the part cannot be read without the rest of the file.
    """

    def ask(following: NextEvent) -> Any:
        event = _first_event(following, alone=True)
        if event is None:
            return None
        value = _PlainBuilder(following, alone=True).value(event, key, False)
        _expect_end(following, alone=True)
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

    def ask(following: NextEvent) -> Node:
        event = _first_event(following, alone=False)
        if event is None:
            raise NeedsSlowPath("empty")
        return _node(event, following, 0)

    return _parse(text, ask)


def _node(event: Any, following: NextEvent, depth: int) -> Node:
    if depth > _MAX_DEPTH:
        raise _error_at(event, "nested too deeply")
    start, end = event.start_mark, event.end_mark
    anchored = getattr(event, "anchor", None) is not None
    kind = type(event)
    if kind is AliasEvent:
        return Node(NodeKind.ALIAS, start.line, start.column, end.line, end.column, anchored=True)
    if kind is ScalarEvent:
        node = Node(NodeKind.SCALAR, start.line, start.column, end.line, end.column, style=event.style or "")
        node.value, node.anchored = event.value, anchored
        if node.style and node.style in "|>" and end.column == 0 and end.line > start.line:
            node.end_line, node.end_column = end.line - 1, 1 << 30
        return node
    flow = bool(event.flow_style)
    if kind is MappingStartEvent:
        node = Node(NodeKind.MAP, start.line, start.column, start.line, start.column, flow, anchored=anchored)
        while type(event := following()) is not MappingEndEvent:
            key = _node(event, following, depth + 1)
            if key.kind is not NodeKind.SCALAR or key.value in node.pairs:
                raise NeedsSlowPath("a key that is not a scalar, or occurs twice")
            value = _node(following(), following, depth + 1)
            node.pairs[key.value] = (key, value)
        return _set_end(node, [child for pair in node.pairs.values() for child in pair], event)
    node = Node(NodeKind.SEQ, start.line, start.column, start.line, start.column, flow, anchored=anchored)
    while type(event := following()) is not SequenceEndEvent:
        node.items.append(_node(event, following, depth + 1))
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
