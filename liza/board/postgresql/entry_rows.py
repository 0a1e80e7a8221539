"""The entries of a board as rows: one for each part of its document, in the order of the text. Pure."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from liza.board.text.document import Document, Part
from liza.board.text.values import to_plain
from liza.model.errors import BoardInconsistent

Name = tuple[str, str]
"""Section and name of an entry, as in ``Document.names``."""

MAX_BODY: Final = 1 << 20
"""Bytes of an entry. A longer one would hold the lock of the crew while it is sent."""
_NO_TEXT: Final = "a NUL or half of a surrogate pair"
_SECTION_STEP: Final = float(1 << 32)
"""Distance between the first entries of two sections, so that entries are added at the end of each."""


class EntryRow(msgspec.Struct, frozen=True):
    """An entry that the table has: where it is in the text, and its text."""

    order: float
    body: str


class EntryWrite(msgspec.Struct, frozen=True):
    """A row to write. ``body`` None deletes the entry; ``value`` is what queries read, in JSON."""

    section: str
    name: str
    kind: str
    order: float
    body: str | None
    value: str | None


def sort_names(rows: Mapping[Name, EntryRow]) -> list[Name]:
    """Return the names of the entries in the order of the text."""
    return sorted(rows, key=lambda name: rows[name].order)


def find_writes(rows: Mapping[Name, EntryRow], after: Document) -> list[EntryWrite]:
    """Return the rows that turn ``rows`` into the entries of ``after``; the deleted ones first.

    Raises BoardInconsistent if PostgreSQL cannot hold an entry.
    """
    names, rows_there = after.names, [rows.get(name) for name in after.names]
    orders = order_entries(names, [None if row is None else row.order for row in rows_there])
    writes = [
        _write_part(name, part, order)
        for name, part, row, order in zip(names, after.parts, rows_there, orders, strict=True)
        if row is None or row.body != part.text or row.order != order
    ]
    if len(rows) == len(names) - rows_there.count(None):
        return writes
    gone = rows.keys() - set(names)
    return [*(EntryWrite(*name, "", rows[name].order, None, None) for name in sorted(gone)), *writes]


def order_entries(names: Sequence[Name], orders: Sequence[float | None]) -> list[float]:
    """Return where each entry is in the text. ``orders``: where it was; it stays if the order is the same."""
    there = [order for order in orders if order is not None]
    if any(map(operator.le, there[1:], there)):
        return _number_entries(names)
    if len(there) == len(names):
        return there
    limits = _limits(orders)
    positions: list[float] = []
    for index, (order, limit) in enumerate(zip(orders, limits, strict=True)):
        if order is None:
            is_first = not index or names[index - 1][0] != names[index][0]
            order = _position_between(positions[-1] if positions else -_SECTION_STEP, limit, is_first)
            if order is None:
                return _number_entries(names)
        positions.append(order)
    return positions


def _limits(orders: Sequence[float | None]) -> list[float]:
    """Return for each entry the position of the next one that stays."""
    limits, limit = [], math.inf
    for order in reversed(orders):
        limits.append(limit)
        limit = limit if order is None else order
    return limits[::-1]


def _position_between(before: float, limit: float, is_first: bool) -> float | None:
    """Return a position after ``before`` and before ``limit``; None if no number is between them."""
    wanted = (before // _SECTION_STEP + 1) * _SECTION_STEP if is_first else before // 1 + 1
    position = wanted if wanted < limit else (before + limit) / 2
    return position if before < position < limit else None


def _number_entries(names: Sequence[Name]) -> list[float]:
    positions: list[float] = []
    start, section = -_SECTION_STEP, None
    for name in names:
        if name[0] != section or not positions:
            start, section = start + _SECTION_STEP, name[0]
            positions.append(start)
        else:
            positions.append(positions[-1] + 1)
    return positions


def _write_part(name: Name, part: Part, order: float) -> EntryWrite:
    entry = f"{name[0]}/{part.key or name[1]}".strip("/")
    try:
        body = part.text.encode()
    except UnicodeEncodeError:
        raise _refuse(entry, _NO_TEXT, "text that UTF-8 can encode") from None
    if len(body) > MAX_BODY:
        raise _refuse(entry, f"{len(body) / (1 << 20):.1f} MB", f"at most {MAX_BODY >> 20} MB for an entry")
    encode_value(entry, [name[1], part.text])
    return EntryWrite(*name, part.kind.value, order, part.text, encode_value(entry, part.value))


def encode_value(entry: str, value: object) -> str:
    """Return the value of an entry in JSON. Raises BoardInconsistent if PostgreSQL cannot store a text of it."""
    try:
        return json.dumps(_to_json(to_plain(value)), ensure_ascii=False)
    except ValueError:
        raise _refuse(entry, _NO_TEXT, "text that PostgreSQL can store") from None


def _to_json(plain: Any) -> Any:
    """Return a plain value as JSON can have it. Raises ValueError for text that PostgreSQL cannot store."""
    if isinstance(plain, str):
        if "\0" in plain:
            raise ValueError("a NUL")
        plain.encode()
        return plain
    if isinstance(plain, float):
        return plain if math.isfinite(plain) else str(plain)
    if isinstance(plain, dict):
        return {_to_json(str(key)): _to_json(item) for key, item in plain.items()}
    return [_to_json(item) for item in plain] if isinstance(plain, list) else plain


def _refuse(entry: str, actual: str, expected: str) -> BoardInconsistent:
    shown = entry.replace("\0", "\\0").encode("ascii", "backslashreplace").decode()[:80]
    return BoardInconsistent(f"{shown}: it has {actual}, wanted {expected}; nothing was written", "liza edit")
