"""Format values as TOML. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def format_value(value: Any) -> str:
    """Return a value as TOML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{format_key(name)} = {format_value(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(format_value, value)) + "]"
    # ensure_ascii=False: escaped surrogate pairs are invalid TOML. TOML also forbids a raw DEL, which JSON allows.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def format_key(name: str) -> str:
    """Return a key, in quotes if TOML needs them."""
    return name if _BARE.fullmatch(name) else format_value(name)


def format_table(table: str, values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a table: inner tables as dotted keys, then one block for each entry of a list of tables.

    Empty values are left out.
    """
    yield f"[{table}]"
    yield from (f"{name} = {format_value(value)}" for name, value in _leaves("", values) if not _is_tables(value))
    for name, blocks in values.items():
        for block in blocks if _is_tables(blocks) else ():
            yield f"[[{table}.{format_key(name)}]]"
            yield from (f"{inner} = {format_value(value)}" for inner, value in _leaves("", block))


def _leaves(before: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(f"{before}{format_key(name)}.", value)
        elif value or (value == 0 and value is not False):
            yield f"{before}{format_key(name)}", value


def _is_tables(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(entry, Mapping) for entry in value)
