"""Format values as text: local times, names, lists, shortened lines. Pure except for the time zone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from liza.printing.columns import align_columns

_LONG_PATH = re.compile(r"/\S*/([^/\s]+)")
MAX_PROGRAM_LENGTH = 32  # characters: a longer program is shown with shortened paths


def format_fields(fields: Mapping[str, Any]) -> str:
    """Return one line per name and value."""
    return align_columns([[name, format_value(value)] for name, value in fields.items()])


def format_value(value: Any) -> str:
    """Return a value in one line; ``-`` for none."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return format_local_time(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {format_value(item)}" for name, item in value.items()) or "-"
    if isinstance(value, list | tuple | frozenset):
        return ", ".join(format_value(item) for item in value) or "-"
    return str(value)


def format_local_time(when: datetime | str) -> str:
    """Return a time in the local time zone. Return other texts, and times outside of the years 1 to 9999, unchanged."""
    try:
        time = datetime.fromisoformat(when) if isinstance(when, str) else when
        return f"{time.astimezone():%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError):
        return str(when)


def format_day(when: datetime, now: datetime) -> str:
    """Return the local day of a time: ``today``, ``yesterday``, ``Fri 20 Nov``, ``Thu 20 Nov 2025``."""
    local, today = when.astimezone(), now.astimezone()
    days = (today.date() - local.date()).days
    if days in (0, 1):
        return ("today", "yesterday")[days]
    return f"{local:%a} {local.day} {local:%b}" + ("" if local.year == today.year else f" {local.year}")


def format_clock(when: datetime) -> str:
    """Return a time of day in the local time zone, with the date if that is another day."""
    local = when.astimezone()
    return f"{local:%H:%M}" if local.date() == datetime.now(local.tzinfo).date() else f"{local:%Y-%m-%d %H:%M}"


def shorten_line(text: str | None, most: int) -> str:
    """Return the text in one line of at most ``most`` characters."""
    line = " ".join((text or "").split())
    return line if len(line) <= most else line[: most - 1] + "…"


def shorten_program(spec: str | None) -> str:
    """Return the program of an agent; long paths in it are shortened to their last part."""
    text = spec or ""
    return text if len(text) <= MAX_PROGRAM_LENGTH else _LONG_PATH.sub(r"…/\1", text)
