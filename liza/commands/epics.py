"""``liza epics``: list the epics and repair their branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command, declare_group
from liza.crew.crew import find_crew
from liza.merging import epics as verbs
from liza.merging.epics import EpicReport
from liza.printing import printing
from liza.printing.columns import align_columns, paint

app = create_app("List the epics and repair their branches.")
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The epic.")]


@declare_group(app, "liza epics", in_sessions=True, position=Position(Heading.MERGES, 21))
def epics(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List the epics: their branches, their open and merged tasks, and whether they have landed."""
    if ctx.invoked_subcommand is not None:
        return
    rows = verbs.list_epics(find_crew())
    printing.print_json({"epics": rows}) if as_json else printing.print_wrapped(
        format_epics(rows, printing.wants_colours())
    )


@declare_command(app, "restore", "liza epics restore invoices", position=Position(Heading.MERGES, 22))
def restore(name: NameArgument, as_json: JsonOption = False) -> None:
    """Put the branch of an epic back to where Liza left it, after it was deleted or moved. What it had is saved."""
    printing.print_result(verbs.restore(find_crew(), name), as_json)


@declare_command(app, "accept", "liza epics accept invoices", position=Position(Heading.MERGES, 23))
def accept(name: NameArgument, as_json: JsonOption = False) -> None:
    """Accept your own commits on the branch of an epic. They land with it, without a verdict."""
    printing.print_result(verbs.accept(find_crew(), name), as_json)


_COLOURS = {"open": "cyan", "to land": "cyan", "landed": "green", "empty": "plain", "set aside": "red", "broken": "red"}


def format_epics(rows: Sequence[EpicReport], colour: bool) -> str:
    """Return one line per epic: its branch, its state, its tasks, and what it waits for with one command."""
    if not rows:
        return "no epics: liza task add --epic NAME begins one"
    return align_columns(
        [
            (
                row.branch,
                paint(row.state, _COLOURS[row.state], colour),
                f"{len(row.merged)} merged, {len(row.open)} open",
                row.why + (f"  {paint(row.next, 'bold', colour)}" if row.next else ""),
            )
            for row in rows
        ]
    )
