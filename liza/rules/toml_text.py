"""Values as a TOML file has them. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def format_value(said: Any) -> str:
    """A value on one line."""
    if isinstance(said, Mapping):
        return "{" + ", ".join(f"{format_key(name)} = {format_value(one)}" for name, one in said.items()) + "}"
    if isinstance(said, list | tuple):
        return "[" + ", ".join(map(format_value, said)) + "]"
    # JSON writes the characters of the higher planes as two halves, which TOML refuses, and leaves DEL, which it does.
    return json.dumps(said, ensure_ascii=False).replace("\x7f", "\\u007f")


def format_key(name: str) -> str:
    """A key, in quotes where it needs them."""
    return name if _BARE.fullmatch(name) else format_value(name)


def format_table(table: str, said: Mapping[str, Any]) -> Iterator[str]:
    """A table with its inner ones by dotted keys, and then a block for each of what is a list of tables. What is empty
    is left out."""
    yield f"[{table}]"
    yield from (f"{name} = {format_value(one)}" for name, one in _leaves("", said) if not _is_tables(one))
    for name, blocks in said.items():
        for block in blocks if _is_tables(blocks) else ():
            yield f"[[{table}.{format_key(name)}]]"
            yield from (f"{inner} = {format_value(one)}" for inner, one in _leaves("", block))


def _leaves(before: str, said: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, one in said.items():
        if isinstance(one, Mapping):
            yield from _leaves(f"{before}{format_key(name)}.", one)
        elif one or (one == 0 and one is not False):
            yield f"{before}{format_key(name)}", one


def _is_tables(said: Any) -> bool:
    return isinstance(said, list | tuple) and bool(said) and all(isinstance(one, Mapping) for one in said)
