"""``liza block``: stop the task with questions for a person."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command
from liza.crew.crew import find_crew
from liza.printing import printing
from liza.tasks.questions import BlockRequest
from liza.tasks.questions import block as block_task

app = create_app()


@declare_command(
    app,
    "block",
    'liza block "the sender address is nowhere in the spec" --ask "Which address?"',
    in_sessions=True,
    position=Position(Heading.AGENTS, 4),
)
def block(
    why: Annotated[str, typer.Argument(help="Why the task cannot continue.")],
    ask: Annotated[
        list[str] | None, typer.Option("--ask", help="A question that a person can answer; 1 to 3 times.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Stop the task with questions for a person."""
    request = BlockRequest(reason=why, questions=tuple(ask or ()))
    printing.print_result(block_task(find_crew(), request), as_json)
