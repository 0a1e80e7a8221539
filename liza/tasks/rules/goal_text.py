"""The goal as a text for an editor, and the notes on its alignment: decisions of planners and edits. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from liza.model.errors import UsageError
from liza.model.model import AlignmentNote, Goal
from liza.model.value_classes import replace
from liza.text.times import format_time

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


def note_edit(before: Goal, after: Goal, by: str, now: datetime) -> Goal:
    """Return ``after`` with a note that says what ``by`` changed in description and document."""
    former = f", not {before.spec_ref}" if before.spec_ref else ""
    changes = [f"the document is {after.spec_ref}{former}"] * (after.spec_ref != before.spec_ref)
    changes += [f"the goal is: {after.description}"] * (after.description != before.description)
    note = AlignmentNote(timestamp=now, event=by, summary="; ".join(changes))
    return replace(after, alignment_history=(*after.alignment_history, note))


def describe_note(note: AlignmentNote) -> str:
    """Return a note as one text: author, time, text."""
    when = f" at {format_time(note.timestamp)}" if note.timestamp is not None else ""
    return f"{note.event or 'unknown'}{when}: {note.summary}"
