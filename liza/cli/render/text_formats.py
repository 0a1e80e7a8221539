"""Values as words for people: times of this machine's clock, names, lists, lines of a length. Pure but for the zone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from liza.cli.render.columns import align_columns

_LONG_PATH = re.compile(r"/\S*/([^/\s]+)")
MAX_PROGRAM_LENGTH = 32  # letters of a program that are shown as they are


def format_fields(found: Mapping[str, Any]) -> str:
    """Names and values, one a line; lists and mappings on one line each."""
    return align_columns([[name, format_value(one)] for name, one in found.items()])


def format_value(found: Any) -> str:
    """A value in a line; ``-`` for none."""
    if found is None:
        return "-"
    if isinstance(found, bool):
        return "yes" if found else "no"
    if isinstance(found, datetime):
        return format_local_time(found)
    if isinstance(found, Mapping):
        return ", ".join(f"{name} {format_value(one)}" for name, one in found.items()) or "-"
    if isinstance(found, list | tuple | frozenset):
        return ", ".join(format_value(one) for one in found) or "-"
    return str(found)


def format_local_time(when: datetime | str) -> str:
    """A time by the clock and calendar of this machine; a text that is no time as it is."""
    try:
        known = datetime.fromisoformat(when) if isinstance(when, str) else when
    except ValueError:
        return str(when)
    return f"{known.astimezone():%Y-%m-%d %H:%M:%S}"


def shorten_line(text: str | None, most: int) -> str:
    """The text in one line of at most so many letters."""
    line = " ".join((text or "").split())
    return line if len(line) <= most else line[: most - 1] + "…"


def shorten_program(spec: str | None) -> str:
    """The program of an agent; long paths in it without their directories."""
    text = spec or ""
    return text if len(text) <= MAX_PROGRAM_LENGTH else _LONG_PATH.sub(r"…/\1", text)


def count_noun(number: int, noun: str, plural: str | None = None) -> str:
    """``1 task``, ``3 tasks``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
