"""``liza status``: show the goal, the tasks, the agents, and what waits for you."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from liza.board.repeated_looks import watch_changes
from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command, refuse_path_of_session
from liza.commands._last_copy import show_last_copy
from liza.commands._slips import command_that_shows
from liza.crew.crew import Crew, find_crew
from liza.model.errors import LizaError, UsageError
from liza.printing import printing, render_crew
from liza.printing.pager import exit_with_reader
from liza.view.status import look
from liza.view.status import status as find_status

REDRAW_SECONDS = 5.0  # without a change, so that the times go on and a supervisor that exited is seen
app = create_app()


@declare_command(
    app,
    "status",
    "liza status --watch\nliza status --short ~/shop ~/blog",
    in_sessions=True,
    position=Position(Heading.LOOK, 1),
)
@show_last_copy
def status(
    directories: Annotated[
        list[Path] | None, typer.Argument(metavar="[DIR]", help="With --short: the directories of crews.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Redraw at each change.")] = False,
    short: Annotated[
        bool, typer.Option("--short", help="One line: what waits for you, merged tasks of all, cost.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the goal, the tasks, the agents, and what waits for you."""
    for directory in directories or ():
        refuse_path_of_session(directory, "leave it out", "liza status --short")
    if short:
        if as_json or watch:
            raise UsageError("--short is one line of text, without --watch and --json", "liza status --json")
        raise typer.Exit(_print_short(directories or ()))
    if directories:
        message = f"liza status is about the whole crew, not only {directories[0]}; --short takes directories"
        is_name = len(directories) == 1 and "/" not in str(directories[0]) and not directories[0].is_dir()
        shorts = f"liza status --short {shlex.join(map(str, directories))}"
        raise UsageError(message, command_that_shows(str(directories[0])) if is_name else shorts)
    crew = find_crew()
    if not watch:
        _print_status(crew, as_json=as_json)
        return
    exit_with_reader()
    with printing.Repainting() as screen:
        for _ in watch_changes(crew.board, None if as_json else REDRAW_SECONDS):
            if as_json:
                printing.print_json_line(find_status(crew))
            else:
                screen.paint(render_crew.format_status(look(crew), printing.wants_colours()))


def _print_status(crew: Crew, *, as_json: bool) -> None:
    if as_json:
        printing.print_json(find_status(crew))
    else:
        printing.print_wrapped(render_crew.format_status(look(crew), printing.wants_colours()))


def _print_short(directories: Sequence[Path]) -> int:
    """Print a line for each directory, with its name if there are several; return the exit code of the first failure.

    A directory without a crew, or whose board cannot be read, is said in its line.
    """
    code = 0
    for directory in directories or (None,):
        name = f"{directory.resolve().name}  " if directory is not None and len(directories) > 1 else ""
        try:
            line = render_crew.format_short(look(find_crew(directory)))
        except LizaError as error:
            line, code = error.message, code or error.exit_code
        printing.print_text(name + " ".join(line.split()))
    return code
