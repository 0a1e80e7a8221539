"""The goal as a text for an editor: its document and its description. Pure."""

from __future__ import annotations

from typing import Final

from liza.rules.errors import UsageError
from liza.rules.model import Goal

_SPEC: Final = "spec:"
_NOTE: Final = "# The document of the goal (committed, or below .liza/specs/); then what the crew should achieve."


def format_goal(goal: Goal) -> str:
    """Return the text that a person edits."""
    return f"{_NOTE}\n{_SPEC} {goal.spec_ref}\n\n{goal.description}\n"


def parse_goal(text: str) -> tuple[str, str]:
    """Return description and document of an edited text. Lines that begin with # are left out. Raises UsageError."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    specs = [line.removeprefix(_SPEC).strip() for line in lines if line.startswith(_SPEC)]
    description = "\n".join(line for line in lines if not line.startswith(_SPEC)).strip()
    if len(specs) != 1 or not specs[0]:
        raise UsageError(f"the text has {len(specs)} lines {_SPEC} FILE; it needs 1 with a file", "liza edit --goal")
    if not description:
        raise UsageError("the goal has no description", "liza edit --goal")
    return description, specs[0]
