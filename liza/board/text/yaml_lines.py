"""Write plain values as lines of YAML, in the style of a hand-written file."""

from __future__ import annotations

import re
from typing import Any, Final

from liza.model.value_classes import Value

_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_PROSE: Final = re.compile(r"[A-Za-z][A-Za-z0-9,._/()+-]*(?: [A-Za-z0-9(/][A-Za-z0-9,._/()+-]*)+")
_WORD_KEYS: Final = frozenset(("status", "role", "type", "severity", "urgency", "event", "permissions", "outcome")) | {
    "trigger",
    "integration_branch",
}
_PROSE_KEYS: Final = frozenset(("description", "done_when", "scope", "summary", "next_action", "approach")) | {
    "message",
    "change",
    "recommendation",
    "reason",
    "detail",
    "rejection_reason",
    "blocked_reason",
    "rescope_reason",
    "retrospective",
    "integration_command",
    "sandbox_setup",
    "why",
}
_ONE_LINE_KEYS: Final = frozenset(("history", "reservation", "merging", "metrics"))
_MAX_WIDTH: Final = 240  # characters of a mapping in braces
_RESERVED_WORDS: Final = frozenset(["null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf"])
_ESCAPES: Final = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


class Style(Value):
    """The style of a file: line ending, and indentation of items relative to their key."""

    newline: str = "\n"
    offset: int = 2


def quote(text: str) -> str:
    """Return ``text`` in double quotes, escaped."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_escape(letter) for letter in text) + '"'


def _escape(letter: str) -> str:
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    if letter.isprintable():
        return letter
    number = ord(letter)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def format_scalar(value: Any, key: str = "") -> str:
    """Return a scalar on one line. Strings are quoted, except words and prose under known keys."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _format_float(value)
    if not isinstance(value, str):
        return str(value)
    if key in _WORD_KEYS and _WORD.fullmatch(value) and value.lower() not in _RESERVED_WORDS:
        return value
    if key in _PROSE_KEYS and _PROSE.fullmatch(value):
        return value
    return quote(value)


def _format_float(value: float) -> str:
    if value != value:
        return ".nan"
    if value in (float("inf"), float("-inf")):
        return ".inf" if value > 0 else "-.inf"
    return repr(value)


def _is_block(text: str) -> bool:
    """Return whether a string of several lines can be written as a block scalar without loss."""
    lines = text.removesuffix("\n").split("\n")
    return (
        len(lines) > 1
        and bool(lines[0])
        and bool(lines[-1])
        and not lines[0][0].isspace()
        and all(line.isprintable() and line == line.rstrip() for line in lines)
    )


def is_inline(value: Any) -> bool:
    """Return whether the value is written on the line of its key."""
    return not value if isinstance(value, dict | list) else not (isinstance(value, str) and _is_block(value))


def format_flow_list(value: list[Any], key: str) -> str:
    """Return a list of scalars in brackets; strings are quoted, since they may contain brackets or commas."""
    return "[" + ", ".join(quote(item) if isinstance(item, str) else format_scalar(item, key) for item in value) + "]"


def format_flow_mapping(value: dict[str, Any], key: str) -> str | None:
    """Return a mapping in braces, on one line, so that a change of it is one line in a diff.

    None if ``key`` is not written this way, or the line would be wider than 240 characters.
    """
    if key not in _ONE_LINE_KEYS or any(isinstance(part, dict | list) for part in value.values()):
        return None
    text = "{" + ", ".join(f"{name}: {_flow_scalar(part, name)}" for name, part in value.items()) + "}"
    fits = len(text) <= _MAX_WIDTH and all(
        _WORD.fullmatch(name) and name.lower() not in _RESERVED_WORDS for name in value
    )
    return text if fits else None


def _flow_scalar(value: Any, key: str) -> str:
    return quote(value) if isinstance(value, str) and key not in _WORD_KEYS else format_scalar(value, key)


def value_lines(value: Any, key: str, column: int, style: Style) -> list[str]:
    """Return the lines of a value with its key at ``column``: first the text after the colon, then whole lines."""
    if isinstance(value, dict) and value and (line := format_flow_mapping(value, key)) is not None:
        return [f" {line}"]
    if isinstance(value, dict):
        return ["", *mapping_lines(value, column + 2, style)] if value else [" {}"]
    if isinstance(value, list):
        return ["", *sequence_lines(value, key, column + style.offset, style)] if value else [" []"]
    if is_inline(value):
        return [f" {format_scalar(value, key)}"]
    mark = "|" if value.endswith("\n") else "|-"
    return [f" {mark}", *(" " * (column + 2) * bool(line) + line for line in value.removesuffix("\n").split("\n"))]


def pair_lines(key: str, value: Any, column: int, style: Style) -> list[str]:
    """Return the lines of a key and its value, without line endings."""
    first, *rest = value_lines(value, key, column, style)
    name = key if _WORD.fullmatch(key) and key.lower() not in _RESERVED_WORDS else quote(key)
    return [f"{' ' * column}{name}:{first}", *rest]


def mapping_lines(value: dict[str, Any], column: int, style: Style) -> list[str]:
    """Return the lines of a non-empty mapping."""
    return [line for key, item in value.items() for line in pair_lines(key, item, column, style)]


def sequence_lines(value: list[Any], key: str, column: int, style: Style) -> list[str]:
    """Return the lines of a non-empty sequence with its dashes at ``column``."""
    return [line for item_ in value for line in item_lines(item_, key, column, style)]


def item_lines(value: Any, key: str, column: int, style: Style) -> list[str]:
    """Return the lines of one item of a sequence."""
    dash = " " * column + "-"
    if isinstance(value, dict) and value and (line := format_flow_mapping(value, key)) is not None:
        return [f"{dash} {line}"]
    if isinstance(value, dict) and value:
        first, *rest = mapping_lines(value, column + 2, style)
        return [f"{dash} {first.lstrip(' ')}", *rest]
    if isinstance(value, list) and value:
        return (
            [f"{dash} {format_flow_list(value, key)}"]
            if all(is_inline(part) for part in value)
            else _nested_lines(value, dash, style)
        )
    first, *rest = value_lines(value, key, column, style)
    return [f"{dash}{first}", *rest]


def _nested_lines(value: list[Any], dash: str, style: Style) -> list[str]:
    column = len(dash) + 1
    first, *rest = sequence_lines(value, "", column, style)
    return [f"{dash} {first.lstrip(' ')}", *rest]
