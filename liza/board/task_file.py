"""The tasks of a `task add --file`, as plain values."""

from __future__ import annotations

from typing import Any

from liza.board.text import parse
from liza.rules.errors import UsageError


def load_tasks(text: str) -> list[dict[str, Any]]:
    """A YAML mapping, a list of them, or a mapping with ``tasks``. Ids are read as they were typed. Raises Usage."""
    try:
        found = parse.parse_text(text)
    except parse.Unparsable as wrong:
        raise UsageError(f"the task file does not parse: {wrong}", "liza task add --help") from wrong
    if isinstance(found, dict) and set(found) == {"tasks"}:
        found = found["tasks"]
    entries = [found] if isinstance(found, dict) else found
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UsageError(
            "a task file is a mapping, or a list of them, with the fields of a task", "liza task add --help"
        )
    return entries
