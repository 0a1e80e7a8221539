"""Read the file of `task add --file`."""

from __future__ import annotations

from typing import Any

from liza.board.text import parse
from liza.model.errors import UsageError


def load_tasks(text: str) -> list[dict[str, Any]]:
    """Return the tasks of a YAML text: one mapping, a list of mappings, or a mapping with the only key ``tasks``.

    Ids stay as they were typed, as text. Raises UsageError if the text is anything else.
    """
    try:
        value = parse.parse_text(text)
    except parse.Unparsable as error:
        raise UsageError(f"the task file does not parse: {error}", "liza task add --help") from error
    if isinstance(value, dict) and set(value) == {"tasks"}:
        value = value["tasks"]
    entries = [value] if isinstance(value, dict) else value
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UsageError(
            "a task file must be a mapping with the fields of a task, or a list of such mappings",
            "liza task add --help",
        )
    return entries
