"""``liza diff``: show what a task changes compared with integration."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, Process, create_app, declare_command
from liza.crew.crew import find_crew
from liza.printing import printing, render_patch
from liza.printing.pager import page_text
from liza.tasks.diff import diff as verb

app = create_app()


@declare_command(
    app,
    "diff",
    "liza diff invoice-model",
    process=Process.DIRECT_AT_TERMINAL,
    in_sessions=True,
    position=Position(Heading.LOOK, 4),
)
def diff(
    task_id: Annotated[str, typer.Argument(metavar="ID", help="The task.")],
    stat: Annotated[bool, typer.Option("--stat", help="Show only file names and numbers of changed lines.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a task changes compared with integration, including uncommitted changes of a running session."""
    crew = find_crew()
    patch = verb(crew, task_id, stat)
    if as_json:
        printing.print_json(patch)
    else:
        page_text(render_patch.format_diff(patch, printing.wants_colours()), crew.git)
