"""``liza edit``: edit a copy of the board in $EDITOR."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from liza.cli.declare import Heading, JsonOption, Position, Process, create_app, declare_command
from liza.cli.render import printing
from liza.crew.crew import find_crew
from liza.rules.errors import UsageError
from liza.verbs import edit as verbs

app = create_app()


@declare_command(
    app,
    "edit",
    "EDITOR=vim liza edit",
    process=Process.DIRECT_AT_TERMINAL,
    in_sessions=True,
    position=Position(Heading.BOARD, 3),
)
def edit(
    what: Annotated[str, typer.Argument(metavar="[board|goal]", help="The board, or .liza/specs/goal.md.")] = "board",
    kept: Annotated[
        Path | None, typer.Option("--from", metavar="F", help="Continue with a copy that was refused.")
    ] = None,
    goal: Annotated[
        bool, typer.Option("--goal", help="The description of the goal, and which file is its document.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Edit a copy of the board in $EDITOR. The copy is checked and merged entry by entry when you finish."""
    if goal:
        if kept is not None or what != "board":
            raise UsageError("--goal cannot be combined with a copy or another text", "liza edit --goal")
        printing.print_result(verbs.edit_goal(find_crew()), as_json)
        return
    printing.print_result(verbs.edit(find_crew(), what, kept), as_json)
