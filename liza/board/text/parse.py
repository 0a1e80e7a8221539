"""YAML text to plain values and to outlines, by the C parser; what it refuses is asked of the pure one."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from _ruamel_yaml import CParser  # type: ignore[import-not-found]
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

from liza.board.text.values import FREE_FORM_KEYS, normalize_scalar

_INT: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_CONSTANTS: Final[dict[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
NULLS: Final = frozenset(("", "~", "null", "Null", "NULL"))

_MAX_NUMBER_LENGTH: Final = 300
_MAX_DEPTH: Final = 48
"""Collections inside each other, at most: whoever walks a value does so on Python's stack."""
_MAX_PURE_TEXT: Final = 1 << 20
"""Letters of a text that the pure parser is asked about, at most: it takes some seconds for as many."""
_MAX_ALIASED_VALUES: Final = 100_000
"""Values that aliases may stand for in one text, all together."""

NextEvent = Callable[[], Any]
T = TypeVar("T")


class Unparsable(Exception):
    """The text is not YAML, or not YAML that a board can be. Lines and columns count from 1."""

    def __init__(self, reason: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {reason}")
        self.reason, self.line, self.column = reason, line, column


class NeedsSlowPath(Exception):
    """The quick way cannot be sure of this text; a slower one must be taken."""


def _error_at(event: Any, reason: str) -> Unparsable:
    return Unparsable(reason, event.start_mark.line + 1, event.start_mark.column + 1)


def parse_plain_scalar(text: str) -> Any:
    """A plain scalar by the core schema of YAML 1.2."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if len(text) > _MAX_NUMBER_LENGTH:
        return text
    if _INT.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _scalar(event: Any, key: str, free: bool) -> Any:
    text = event.value
    if event.implicit[0] and not event.style:
        if text in NULLS:
            return None
        if free:
            return parse_plain_scalar(text)
    return text if free else normalize_scalar(key, text)


class _PlainBuilder:
    """One pass over events that makes plain values; mappings leave out keys whose value is null."""

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
        made = _scalar(event, key, free) if kind is ScalarEvent else self._collection(event, key, free)
        self._size += 1
        if event.anchor is not None:
            self._anchors[event.anchor] = made, self._size - before
        return made

    def _alias(self, event: Any) -> Any:
        """What an alias stands for; a few lines of aliases of aliases stand for more than any memory holds."""
        if event.anchor not in self._anchors:
            raise _error_at(event, f"unknown anchor {event.anchor}")
        made, size = self._anchors[event.anchor]
        self._size += size
        self._aliased += size
        if self._aliased > _MAX_ALIASED_VALUES:
            raise _error_at(event, "aliases that stand for too much")
        return made

    def _collection(self, event: Any, key: str, free: bool) -> Any:
        if self._depth == _MAX_DEPTH:
            raise _error_at(event, "nested too deeply")
        self._depth += 1
        made = self._mapping(key, free) if type(event) is MappingStartEvent else self._sequence(key, free)
        self._depth -= 1
        return made

    def _mapping(self, key: str, free: bool) -> dict[str, Any]:
        found: dict[str, Any] = {}
        seen = set()
        following = self._next
        free = free or key in FREE_FORM_KEYS
        while type(event := following()) is not MappingEndEvent:
            if type(event) is not ScalarEvent:
                raise _error_at(event, "a key that is not a word")
            name = event.value
            if name in seen:
                raise _error_at(event, f"the key {name!r} stands twice")
            seen.add(name)
            made = self.value(following(), name, free)
            if name == "<<" and not event.style:
                _merge_keys(found, made)
            elif made is not None or free:
                found[name] = made
        return found

    def _sequence(self, key: str, free: bool) -> list[Any]:
        found = []
        following = self._next
        while type(event := following()) is not SequenceEndEvent:
            found.append(self.value(event, key, free))
        return found


def _merge_keys(found: dict[str, Any], made: Any) -> None:
    for source in made if isinstance(made, list) else [made]:
        if isinstance(source, dict):
            for key, value in source.items():
                found.setdefault(key, value)


def _pure_parser(text: str) -> NextEvent:
    from ruamel.yaml import YAML  # slow to import, and asked only about what the C parser refused

    events = YAML(typ="safe", pure=True).parse(text)

    def following() -> Any:
        event = next(events)
        if isinstance(event, ScalarEvent):
            # The C parser knows that half of a letter is none, however it is spelled.
            event.value.encode()
        return event

    return following


def _first_event(following: NextEvent, alone: bool) -> Any:
    """The first event of the only document, or None where the text is empty of values."""
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


def _parse_with_fallback(text: str, ask: Callable[[NextEvent], T]) -> T:
    """The answer over the C parser's events, or over the pure one's where C refuses. Raises Unparsable."""
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
        raise Unparsable("half of a letter, which UTF-8 does not have", line + 1, column) from None
    try:
        return ask(_pure_parser(text))
    except YAMLError as error:
        raise _to_unparsable(error) from None
    except (RecursionError, ValueError, ArithmeticError) as error:
        # The pure parser goes down with the text's own depth, and trips over numbers that it takes for letters.
        raise Unparsable(f"not YAML: {type(error).__name__}", 1, 1) from None


def _to_unparsable(error: YAMLError) -> Unparsable:
    if not isinstance(error, MarkedYAMLError):
        return Unparsable(" ".join(str(error).split()), 1, 1)
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    return Unparsable(error.problem or error.context or "not YAML", line, column)


def parse_text(text: str) -> Any:
    """The plain value of a whole file: strings as written, nulls left out. Raises Unparsable."""

    def ask(following: NextEvent) -> Any:
        event = _first_event(following, alone=False)
        if event is None:
            return None
        made = _PlainBuilder(following, alone=False).value(event, "", False)
        _expect_end(following, alone=False)
        return made

    return _parse_with_fallback(text, ask)


def parse_part(text: str, key: str) -> Any:
    """The plain value of one part of a file below ``key``. Raises Unparsable; Doubt where it needs the rest."""

    def ask(following: NextEvent) -> Any:
        event = _first_event(following, alone=True)
        if event is None:
            return None
        made = _PlainBuilder(following, alone=True).value(event, key, False)
        _expect_end(following, alone=True)
        return made

    return _parse_with_fallback(text, ask)


@dataclass(slots=True)
class Node:
    """Where a value stands: lines and columns from 0, the end column exclusive."""

    kind: str
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
    """Where every value of the text stands. Raises Unparsable, or Doubt for what has no plain outline."""

    def ask(following: NextEvent) -> Node:
        event = _first_event(following, alone=False)
        if event is None:
            raise NeedsSlowPath("empty")
        return _node(event, following, 0)

    return _parse_with_fallback(text, ask)


def _node(event: Any, following: NextEvent, depth: int) -> Node:
    if depth > _MAX_DEPTH:
        raise _error_at(event, "nested too deeply")
    start, end = event.start_mark, event.end_mark
    anchored = getattr(event, "anchor", None) is not None
    kind = type(event)
    if kind is AliasEvent:
        return Node("alias", start.line, start.column, end.line, end.column, anchored=True)
    if kind is ScalarEvent:
        made = Node("scalar", start.line, start.column, end.line, end.column, style=event.style or "")
        made.value, made.anchored = event.value, anchored
        if made.style and made.style in "|>" and end.column == 0 and end.line > start.line:
            made.end_line, made.end_column = end.line - 1, 1 << 30
        return made
    flow = bool(event.flow_style)
    if kind is MappingStartEvent:
        made = Node("map", start.line, start.column, start.line, start.column, flow, anchored=anchored)
        while type(event := following()) is not MappingEndEvent:
            key = _node(event, following, depth + 1)
            if key.kind != "scalar" or key.value in made.pairs:
                raise NeedsSlowPath("a key that is not a plain word")
            value = _node(following(), following, depth + 1)
            made.pairs[key.value] = (key, value)
        return _set_end(made, [node for pair in made.pairs.values() for node in pair], event)
    made = Node("seq", start.line, start.column, start.line, start.column, flow, anchored=anchored)
    while type(event := following()) is not SequenceEndEvent:
        made.items.append(_node(event, following, depth + 1))
    return _set_end(made, made.items, event)


def _set_end(made: Node, inside: list[Node], event: Any) -> Node:
    """A flow collection ends at its bracket, a block one with the last value in it."""
    if made.flow:
        made.end_line, made.end_column = event.end_mark.line, event.end_mark.column
    else:
        last = max(inside, key=lambda node: (node.end_line, node.end_column), default=made)
        made.end_line, made.end_column = last.end_line, last.end_column
    return made


def locate_error(text: str, said: str) -> str:
    """``line:column:`` of what a validation error speaks of, as far as its path can be followed."""
    path = said.rpartition(" - at `$.")[2].rstrip("`") if " - at `$." in said else ""
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
