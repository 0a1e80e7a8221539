"""``liza history``: show what happened, newest first, one line per revision."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.cli.declare import (
    Heading,
    JsonOption,
    Position,
    Process,
    create_app,
    declare_command,
)
from liza.cli.render import printing, render_patch
from liza.cli.render.pager import page_text
from liza.cli.render.reader_watch import exit_with_reader
from liza.commands.logs import FollowOption
from liza.crew.crew import find_crew
from liza.verbs import history as verbs

app = create_app()
OptionalTaskId = Annotated[str | None, typer.Argument(metavar="[ID]", help="Only this task.")]


@declare_command(
    app,
    "history",
    "liza history invoice-model -p",
    process=Process.DIRECT_AT_TERMINAL,
    position=Position(Heading.LOOK, 6),
)
def history(
    task_id: OptionalTaskId = None,
    follow: FollowOption = False,
    patch: Annotated[bool, typer.Option("-p", "--patch", help="Include the changes of the board.")] = False,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="Maximum number of revisions.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """Show what happened, newest first, one line per revision. The same in git: git log -p refs/liza/blackboard."""
    crew = find_crew()
    revisions = verbs.history(crew, task_id, limit, patch)
    if as_json and not follow:
        printing.print_json({"revisions": revisions})
    elif not follow:
        page_text(render_patch.format_history(revisions, printing.wants_colours()), crew.git)
    else:
        exit_with_reader()
        for entry in verbs.follow_history(crew, task_id, revisions, patch):
            if as_json:
                printing.print_json_line(entry)
            else:
                printing.print_now(render_patch.format_history([entry], printing.wants_colours()))
