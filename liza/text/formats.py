"""Values as text: counts with their noun, times, suggestions for a mistyped word, ASCII and TOML. Pure."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any


def count_noun(number: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 task``, ``3 tasks``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def format_bytes(size: float) -> str:
    """Return ``512 bytes``, ``40 kB``, ``12 MB`` or ``1.5 GB``, in powers of 1000."""
    if size < 1000:
        return f"{int(size)} bytes"
    if size < 1e6:
        return f"{size / 1e3:.0f} kB"
    return f"{size / 1e6:.0f} MB" if size < 1e9 else f"{size / 1e9:.1f} GB"


MINUTE, HOUR, DAY = 60, 3600, 86400


def format_time(moment: datetime) -> str:
    """Return a time in UTC, in whole seconds: ``2026-01-31T12:00:00Z``.

    One that UTC has outside of the years 1 to 9999, which a person or an agent wrote, keeps its offset.
    """
    try:
        return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    except OverflowError:
        return moment.isoformat(timespec="seconds")


def format_duration(seconds: float) -> str:
    """Return ``40 s``, ``4 min``, ``2 h 5 min`` or ``3 days``: at most the two largest units, rounded down."""
    total = max(0, int(seconds))
    if total < 2 * MINUTE:
        return f"{total} s"
    if total < HOUR:
        return f"{total // MINUTE} min"
    if total < 2 * DAY:
        minutes = total % HOUR // MINUTE
        return f"{total // HOUR} h" + (f" {minutes} min" if minutes else "")
    return f"{total // DAY} days"


def closest_match(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that is most similar to a mistyped word, in any case; None if none is similar."""
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    matches = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[matches[0]] if matches else None


def find_synonym(word: str, synonyms: Mapping[str, str]) -> str | None:
    """Return what a word means, in any case, with ``_`` or spaces for hyphens; None if it is no synonym."""
    return synonyms.get(word.lower().replace("_", "-").replace(" ", "-"))


def did_you_mean(word: str, candidates: Iterable[str], synonyms: Mapping[str, str] | None = None) -> str:
    """Return the end of a message, such as ``; did you mean show?``; empty if no candidate is similar.

    ``synonyms``: candidates by words, in small letters with hyphens, that mean them and are not similar.
    """
    names = tuple(candidates)
    synonym = find_synonym(word, synonyms or {})
    match = synonym if synonym in names else closest_match(word, names)
    return f"; did you mean {match}?" if match else ""


_LETTERS = str.maketrans(
    {
        "ä": "ae",
        "ö": "oe",
        "ü": "ue",
        "ß": "ss",
        "æ": "ae",
        "œ": "oe",
        "ø": "o",
        "ł": "l",
        "đ": "d",
        "ð": "d",
        "þ": "th",
    }
)
"""Letters that have no form without their mark, or another one in German."""


def to_ascii(text: str) -> str:
    """Return ``text`` in small letters of ASCII: ``Grüße, René`` becomes ``gruesse, rene``. Others are dropped."""
    letters = unicodedata.normalize("NFC", text).lower().translate(_LETTERS)
    return unicodedata.normalize("NFKD", letters).encode("ascii", "ignore").decode()


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
