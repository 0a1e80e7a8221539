"""``liza note``: add a note to the board."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.briefs import note as notes
from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command
from liza.crew.crew import find_crew
from liza.printing import printing

app = create_app()


@declare_command(
    app, "note", 'liza note --to invoice-pdf "use the fonts in assets/"', position=Position(Heading.STEER, 9)
)
def note(
    text: Annotated[str, typer.Argument(help="The text of the note.")],
    to: Annotated[
        str | None, typer.Option("--to", metavar="AGENT|TASK", help="The recipient; default: the whole crew.")
    ] = None,
    now: Annotated[bool, typer.Option("--now", help="Also deliver it to the running session.")] = False,
    priority: Annotated[
        str | None,
        typer.Option(
            "--priority",
            metavar="urgent|system|normal|low",
            help="Also deliver it to the running session: at once, by an interrupt if the program can; at the next "
            "edge of a turn (--now alone); when its turn is over; or when it is idle and nothing else waits.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Add a note to the board."""
    crew = find_crew()
    is_delivered = now or priority is not None
    result = notes.send_note(crew, text, to, priority) if is_delivered else notes.note(crew, text, to)
    printing.print_result(result, as_json)
