"""``liza undo``: take back what a merged task brought, if the tests pass without it."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command
from liza.commands.merge import UntestedOption, announce_tests
from liza.crew.crew import find_crew
from liza.merging.undo import undo as verb
from liza.printing import printing

app = create_app()


@declare_command(
    app,
    "undo",
    'liza undo invoice-fax --because "no customer has a fax"',
    position=Position(Heading.MERGES, 14),
)
def undo(
    task_id: Annotated[str, typer.Argument(metavar="TASK", help="The merged task.")],
    because: Annotated[str, typer.Option("--because", metavar="TEXT", help="Why; the history keeps it.")] = "",
    untested: UntestedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Take back what a merged task brought to integration, if the tests pass without it.

    Only the change of this task is reverted, also if it was merged in a batch or with an epic. Merged tasks that build
    on it have to be undone first. A task that has landed on your branch is yours to revert there."""
    crew = find_crew()
    announce_tests(crew.board, as_json)
    printing.print_result(verb(crew, task_id, because, untested=untested), as_json)
