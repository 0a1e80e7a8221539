"""``liza explain``: what alarms, errors and findings mean."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from itertools import groupby
from typing import Annotated

import typer

from liza.alarms.rules.troubleshooting import Explanation, normalize_name
from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command
from liza.commands._last_copy import show_last_copy
from liza.model.errors import UsageError
from liza.printing import printing
from liza.printing.columns import paint, shorten_line
from liza.view.explain import AlarmText, read_entries
from liza.view.explain import explain as verb

app = create_app()

MAX_EXPLAINED = 2
"""Maximum number of kinds of alarms that are explained at once: more do not fit on a screen."""
MAX_ALARMS = 20


@declare_command(
    app,
    "explain",
    "liza explain\nliza explain expired_lease\nliza explain login refused\nliza explain --all",
    in_sessions=True,
    position=Position(Heading.LOOK, 13),
)
@show_last_copy
def explain(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]", help="An alarm, the code of an error, or words of an entry."),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="List the names of all entries.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Say what an alarm or an error means, what Liza does by itself, and which command answers it.

    Without NAME: the alarms that the crew has now, and what they mean if they are few. The entries are those of
    specs/troubleshooting.md.
    """
    if all_ and words:
        raise UsageError("--all lists all entries, and takes no NAME", "liza explain --all")
    result = verb(words or ())
    colour = printing.wants_colours()
    if as_json:
        printing.print_json(result)
    elif all_:
        printing.print_wrapped(format_names(read_entries(), colour))
        printing.print_text("next: liza explain NAME")
    elif words or 0 < len(result.entries) <= MAX_EXPLAINED:
        printing.print_wrapped(format_explanations(result.alarms, result.entries, colour))
    elif result.alarms:
        printing.print_text(format_alarms(result.alarms, printing.text_width(), colour))
    else:
        printing.print_text("no alarm; liza explain --all lists all alarms, errors and findings")


def format_explanations(alarms: Sequence[AlarmText], entries: Sequence[Explanation], colour: bool) -> str:
    """Return each entry, with the alarms of its kind above it."""
    by_kind: dict[str, list[AlarmText]] = {}
    for alarm in alarms:
        by_kind.setdefault(normalize_name(alarm.kind), []).append(alarm)
    explained = {normalize_name(entry.name) for entry in entries}
    parts = ["\n".join(_alarm_lines(rows, colour)) for kind, rows in by_kind.items() if kind not in explained]
    for entry in entries:
        lines = [*_alarm_lines(by_kind.get(normalize_name(entry.name), ()), colour), *_entry_lines(entry, colour)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def format_alarms(alarms: Sequence[AlarmText], width: int | None, colour: bool) -> str:
    """Return a line for each alarm: its name and its message, cut to ``width``."""
    names = max(len(alarm.kind) for alarm in alarms[:MAX_ALARMS])
    room = sys.maxsize if width is None else width - names - 2
    rows = [(paint(f"{row.kind:<{names}}", "bold", colour), row.message) for row in alarms[:MAX_ALARMS]]
    lines = [f"{name}  {shorten_line(message, room)}" for name, message in rows]
    lines += [f"{len(alarms) - MAX_ALARMS} more: liza status"] if len(alarms) > MAX_ALARMS else []
    return "\n".join([*lines, "next: liza explain NAME"])


def format_names(entries: Sequence[Explanation], colour: bool) -> str:
    """Return the names of all entries, by group."""
    lines = []
    for group, members in groupby(entries, lambda entry: entry.group):
        lines += [paint(group, "bold", colour), f"  {', '.join(entry.name for entry in members)}"]
    return "\n".join(lines)


def _alarm_lines(alarms: Sequence[AlarmText], colour: bool) -> list[str]:
    lines = []
    for alarm in alarms:
        lines.append(paint(f"! {alarm.message}", "red", colour))
        lines += [f"    {alarm.next}"] if alarm.next else []
    return lines


def _entry_lines(entry: Explanation, colour: bool) -> list[str]:
    return [
        f"{paint(entry.name, 'bold', colour)}  {paint(entry.group, 'dim', colour)}",
        *(
            f"  {label}  {_with_commands(getattr(entry, field), colour)}"
            for label, field in (("means", "meaning"), ("Liza ", "reaction"), ("you  ", "answer"))
        ),
    ]


def _with_commands(text: str, colour: bool) -> str:
    """Return the text with its commands in bold; without colours they keep their backticks."""
    return re.sub("`([^`]*)`", lambda match: paint(match[1], "bold", True), text) if colour else text
