"""Format the epics as text. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from liza.cli.render.columns import align_columns, paint

_COLOURS = {"open": "cyan", "to land": "cyan", "landed": "green", "empty": "plain", "set aside": "red", "broken": "red"}


def format_epics(rows: Sequence[Mapping[str, Any]], colour: bool) -> str:
    """Return one line per epic: its branch, its state, its tasks, and what it waits for with one command."""
    if not rows:
        return "no epics: liza task add --epic NAME begins one"
    return align_columns(
        [
            (
                str(row["branch"]),
                paint(str(row["state"]), _COLOURS[row["state"]], colour),
                f"{len(row['merged'])} merged, {len(row['open'])} open",
                row["why"] + (f"  {paint(row['next'], 'bold', colour)}" if row["next"] else ""),
            )
            for row in rows
        ]
    )
