"""``liza push``: push the branches of tasks to origin, as a backup."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command
from liza.crew.crew import find_crew
from liza.landing.branch_backup import push_tasks
from liza.printing import printing

app = create_app()
OriginOption = Annotated[
    str | None,
    typer.Option(
        "--origin", metavar="URL", help="Accept this address of origin, for this push and all later ones, then push."
    ),
]


@declare_command(app, "push", "liza push invoice-model", position=Position(Heading.MERGES, 15))
def push(
    tasks: Annotated[
        list[str] | None, typer.Argument(metavar="[ID…]", help="Tasks; default: all with commits that were not pushed.")
    ] = None,
    origin: OriginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Push the branches of tasks to origin, as a backup: `task/ID` there has the commits of the task.

    With `config.push: auto` the crew does it after each submission. No branch is overwritten that others pushed.
    """
    printing.print_result(push_tasks(find_crew(), tasks or (), origin), as_json)
