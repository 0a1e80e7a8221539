"""``liza edit``: edit a copy of the board in $EDITOR."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, Process, create_app, declare_command, read_text
from liza.crew.crew import find_crew
from liza.model.errors import UsageError
from liza.printing import printing
from liza.tasks import edit as verbs
from liza.tasks.edit import hand_in

app = create_app()


@declare_command(
    app,
    "edit",
    "EDITOR=vim liza edit\nliza edit --from - < board.yaml",
    process=Process.DIRECT_AT_TERMINAL,
    in_sessions=True,
    position=Position(Heading.BOARD, 3),
)
def edit(
    what: Annotated[str, typer.Argument(metavar="[board|goal]", help="The board, or .liza/specs/goal.md.")] = "board",
    kept: Annotated[
        str | None,
        typer.Option("--from", metavar="F|-", help="A copy that was refused; -: merge the text on stdin."),
    ] = None,
    printed: Annotated[bool, typer.Option("--print", help="Print the board, for an edit of its text.")] = False,
    goal: Annotated[
        bool, typer.Option("--goal", help="The description of the goal, and which file is its document.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Edit a copy of the board in $EDITOR. The copy is checked and merged entry by entry when you finish.

    An agent hands in a text with --from -: its own entry, the hand-off of its task, new discoveries and anomalies."""
    if printed or kept == "-":
        if what != "board" or goal or (printed and kept is not None):
            raise UsageError("--print and --from - are for the board, each without other options", "liza edit --print")
        if printed:
            sys.stdout.buffer.write(find_crew().board.read_text().encode())
        else:
            printing.print_result(hand_in(find_crew(), read_text("-")), as_json)
        return
    if goal:
        if kept is not None or what != "board":
            raise UsageError("--goal cannot be combined with a copy or another text", "liza edit --goal")
        printing.print_result(verbs.edit_goal(find_crew()), as_json)
        return
    printing.print_result(verbs.edit(find_crew(), what, None if kept is None else Path(kept)), as_json)
