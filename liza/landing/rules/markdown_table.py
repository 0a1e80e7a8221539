"""Tables of Markdown with texts of agents: no text mentions a person, refers to another issue or closes one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from liza.text.redaction import redact

_CELL = 120
_ESCAPES = {
    "\\": "\\\\",
    "|": "\\|",
    "`": "\\`",
    "<": "&lt;",
    ">": "&gt;",
    "[": "\\[",
    "*": "\\*",
    # A zero-width space: no person is notified, and no issue is closed.
    "@": "@\u200b",
    "#": "#\u200b",
    "://": ":\u200b//",
}


def format_table_rows(names: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table, with an empty one after it."""
    lines = (f"| {' | '.join(row)} |" for row in rows)
    return [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}", *lines, ""]


def format_cell(text: str) -> str:
    """Return a text in one line, shortened and escaped."""
    line = " ".join(redact(text).split())
    line = line if len(line) <= _CELL else f"{line[: _CELL - 1]}…"
    for character, escaped in _ESCAPES.items():
        line = line.replace(character, escaped)
    return line
