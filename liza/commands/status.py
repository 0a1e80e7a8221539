"""``liza status``: show the goal, the tasks, the agents, and what waits for you."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.cli.declare import (
    Heading,
    JsonOption,
    Position,
    create_app,
    declare_command,
)
from liza.cli.render import printing, render_crew
from liza.cli.render.reader_watch import exit_with_reader
from liza.crew.crew import find_crew
from liza.verbs.change_stream import follow_status
from liza.verbs.status import status as find_status

app = create_app()


@declare_command(app, "status", "liza status --watch", position=Position(Heading.LOOK, 1))
def status(
    watch: Annotated[bool, typer.Option("--watch", help="Redraw at each change.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the goal, the tasks, the agents, and what waits for you."""
    if not watch:
        summary = find_status(find_crew())
        if as_json:
            printing.print_json(summary)
        else:
            printing.print_wrapped(render_crew.format_status(summary, printing.wants_colours()))
        return
    exit_with_reader()
    for summary in follow_status(find_crew()):
        if as_json:
            printing.print_json_line(summary)
        else:
            printing.redraw_screen(render_crew.format_status(summary, printing.wants_colours()))
