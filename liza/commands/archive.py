"""``liza archive``: move closed tasks from the board to .liza/archive."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command
from liza.crew.crew import find_crew
from liza.printing import printing
from liza.tasks import archive as verbs

app = create_app()


@declare_command(app, "archive", "liza archive --keep 20", position=Position(Heading.BOARD, 1))
def archive(
    keep: Annotated[int, typer.Option("--keep", metavar="N", help="Leave the N newest closed tasks.")] = 0,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Move nothing: restore lost entries from the history, count the tasks anew."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Move closed tasks from the board to .liza/archive. They are still shown, counted and satisfy dependencies.

    It also happens by itself when the board has more closed tasks than config.archive_after.
    """
    crew = find_crew()
    printing.print_result(verbs.repair(crew) if repair else verbs.archive(crew, keep), as_json)
