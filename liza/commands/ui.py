"""``liza ui``: show the crew as a picture that follows it, with keys to answer, review and steer."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Annotated

import typer

from liza.commands._declare import Heading, Position, Process, create_app, declare_command
from liza.commands._last_copy import show_last_copy
from liza.crew.caller import enclosing_run
from liza.crew.crew import find_crew
from liza.model.errors import Missing, UsageError
from liza.printing import printing
from liza.system.installation import extra_command

app = create_app()


@declare_command(
    app, "ui", "liza ui\nliza ui --once", process=Process.DIRECT_AT_TERMINAL, position=Position(Heading.LOOK, 2)
)
def ui(
    read_only: Annotated[bool, typer.Option("--read-only", help="Only look: no key changes anything.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Print one picture as text, and end.")] = False,
) -> None:
    """Show the crew as a picture that follows it, with keys to answer, review and steer."""
    if once:
        raise typer.Exit(_print_once() or 0)
    crew = find_crew()
    if (
        not all(file.isatty() for file in (sys.stdin, sys.stdout, sys.stderr))
        or os.environ.get("TERM", "dumb") == "dumb"
    ):
        raise UsageError("liza ui needs a terminal that can move its cursor", "liza status")
    try:
        from liza.ui.terminal.picture_app import PictureApp
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("textual", "rich"):
            raise
        raise Missing("liza ui needs the package textual", extra_command("ui")) from error
    picture = PictureApp(crew, is_read_only=read_only or enclosing_run(crew) is not None)
    picture.run()
    for outcome in picture.unshown:
        printing.print_now(f"{outcome.text} ({outcome.next})\n" if outcome.next else f"{outcome.text}\n")
    if not all(outcome.is_done for outcome in picture.unshown):
        raise typer.Exit(1)
    if picture.return_code:
        raise typer.Exit(picture.return_code)


@show_last_copy
def _print_once() -> int | None:
    from liza.ui.facts import format_once

    crew = find_crew()
    if crew.is_on_server:
        crew.board.read()  # Without the server this raises, and the last copy is drawn.
    printing.print_text(format_once(crew, *shutil.get_terminal_size()))
    return None
