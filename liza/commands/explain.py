"""``liza explain``: what alarms, errors and findings mean."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any

import typer

from liza.cli.declare import Heading, JsonOption, Position, create_app, declare_command
from liza.cli.render import printing
from liza.cli.render.columns import paint
from liza.crew.crew import find_crew_or_none
from liza.rules.reports.troubleshooting import normalize_name
from liza.verbs.explain import explain as verb

app = create_app()

Row = Mapping[str, Any]


@declare_command(
    app,
    "explain",
    "liza explain\nliza explain expired_lease\nliza explain login refused",
    position=Position(Heading.LOOK, 13),
)
def explain(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]", help="An alarm, the code of an error, or words of an entry."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what an alarm or an error means, what Liza does by itself, and which command answers it.

    Without NAME: the alarms that the crew has now. If it has none, and outside a crew: the names of all entries. The
    entries are those of specs/troubleshooting.md.
    """
    result = verb(words or ())
    if as_json:
        printing.print_json(result)
    elif words or result["alarms"]:
        text = format_explanations(result["alarms"], result["entries"], printing.wants_colours())
        printing.print_wrapped(text)
    else:
        if find_crew_or_none() is not None:
            printing.print_text("No alarm now. All entries:")
        printing.print_wrapped(format_names(result["entries"], printing.wants_colours()))
        printing.print_text("next: liza explain NAME")


def format_explanations(alarms: Sequence[Row], entries: Sequence[Row], colour: bool) -> str:
    """Return each entry, with the alarms of its kind above it."""
    by_kind: dict[str, list[Row]] = {}
    for alarm in alarms:
        by_kind.setdefault(normalize_name(alarm["kind"]), []).append(alarm)
    explained = {normalize_name(entry["name"]) for entry in entries}
    parts = ["\n".join(_alarm_lines(rows, colour)) for kind, rows in by_kind.items() if kind not in explained]
    for entry in entries:
        lines = [*_alarm_lines(by_kind.get(normalize_name(entry["name"]), ()), colour), *_entry_lines(entry, colour)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def format_names(entries: Sequence[Row], colour: bool) -> str:
    """Return the names of all entries, by group."""
    lines = []
    for group, rows in groupby(entries, lambda entry: str(entry["group"])):
        lines += [paint(group, "bold", colour), f"  {', '.join(row['name'] for row in rows)}"]
    return "\n".join(lines)


def _alarm_lines(alarms: Sequence[Row], colour: bool) -> list[str]:
    lines = []
    for alarm in alarms:
        lines.append(paint(f"! {alarm['message']}", "red", colour))
        lines += [f"    {alarm['next']}"] if alarm["next"] else []
    return lines


def _entry_lines(entry: Row, colour: bool) -> list[str]:
    return [
        f"{paint(entry['name'], 'bold', colour)}  {paint(entry['group'], 'dim', colour)}",
        *(
            f"  {label}  {_with_commands(entry[field], colour)}"
            for label, field in (("means", "meaning"), ("Liza ", "reaction"), ("you  ", "answer"))
        ),
    ]


def _with_commands(text: str, colour: bool) -> str:
    """Return the text with its commands in bold; without colours they keep their backticks."""
    return re.sub("`([^`]*)`", lambda match: paint(match[1], "bold", True), text) if colour else text
