"""``liza slots``: list the slots, remove and repair them."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command, declare_group
from liza.crew.crew import find_crew
from liza.printing import printing
from liza.printing.columns import align_columns, paint
from liza.recovery import slots as verbs
from liza.text.formats import format_bytes, format_duration

app = create_app("List the slots, remove and repair them.")


@declare_group(app, "liza slots", position=Position(Heading.BOARD, 26))
def slots(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List the slots, the worktrees that are reused from task to task: state, task, last agent, size on disk."""
    if ctx.invoked_subcommand is not None:
        return
    listing = verbs.list_slots(find_crew())
    printing.print_json(listing) if as_json else printing.print_wrapped(format_slots(listing, printing.wants_colours()))


@declare_command(app, "prune", "liza slots prune", position=Position(Heading.BOARD, 27))
def prune(as_json: JsonOption = False) -> None:
    """Remove all free slots. Later claims create slots again, with their set-up. Slots with unsaved work stay."""
    printing.print_result(verbs.prune(find_crew()), as_json)


@declare_command(app, "repair", "liza slots repair s3", position=Position(Heading.BOARD, 28))
def repair(
    slot: Annotated[str | None, typer.Argument(metavar="[SLOT]", help="The slot; default: all.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Repair slots whose directory or records were deleted, moved or replaced. No file in them is deleted."""
    printing.print_result(verbs.repair(find_crew(), slot), as_json)


@declare_command(app, "nuke", "liza slots nuke s3", position=Position(Heading.BOARD, 29))
def nuke(slot: Annotated[str, typer.Argument(metavar="SLOT", help="The slot.")], as_json: JsonOption = False) -> None:
    """Remove a slot that no agent uses. Its work is saved first. Its agents and their records stay.

    A task that waits for its next claim continues with its saved work in a new slot.
    """
    printing.print_result(verbs.nuke(find_crew(), slot), as_json)


_COLOURS = {"busy": "cyan", "free": "green", "dirty": "yellow", "damaged": "red"}


def format_slots(listing: verbs.SlotList, colour: bool) -> str:
    """Return one line per slot, then the total size and the limits."""
    rows = [
        (
            row.name,
            paint(row.state.value, _COLOURS[row.state], colour),
            row.branch or "",
            row.agent or "",
            "" if row.age is None else f"used {format_duration(row.age)} ago",
            format_bytes(row.bytes),
            row.why + (f"  {paint(row.next, 'bold', colour)}" if row.next else ""),
        )
        for row in listing.slots
    ]
    if not rows:
        return "no slots yet: the first claim creates one"
    limits = [f"at most {listing.max} slots of tasks"] if listing.max else []
    limits += [f"at most {format_bytes(listing.max_bytes)}"] if listing.max_bytes else []
    total = ", ".join([f"{len(rows)} slots, {format_bytes(listing.bytes)}", *limits])
    return f"{align_columns(rows)}\n\n{total}"
