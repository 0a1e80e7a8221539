"""Format the slots as text. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from liza.cli.render.columns import align_columns, paint
from liza.rules.formatting.durations import format_duration
from liza.rules.formatting.sizes import format_bytes

_COLOURS = {"busy": "cyan", "free": "green", "dirty": "yellow", "damaged": "red"}


def format_slots(listing: Mapping[str, Any], colour: bool) -> str:
    """Return one line per slot, then the total size and the limits."""
    rows = [
        (
            str(row["name"]),
            paint(str(row["state"]), _COLOURS[row["state"]], colour),
            str(row["branch"] or ""),
            str(row["agent"] or ""),
            "" if row["age"] is None else f"used {format_duration(row['age'])} ago",
            format_bytes(row["bytes"]),
            row["why"] + (f"  {paint(row['next'], 'bold', colour)}" if row["next"] else ""),
        )
        for row in listing["slots"]
    ]
    if not rows:
        return "no slots yet: the first claim creates one"
    limits = [f"at most {listing['max']} slots of tasks"] if listing["max"] else []
    limits += [f"at most {format_bytes(listing['max_bytes'])}"] if listing["max_bytes"] else []
    total = ", ".join([f"{len(rows)} slots, {format_bytes(listing['bytes'])}", *limits])
    return f"{align_columns(rows)}\n\n{total}"
