"""``liza pause``: start no new work until `liza resume`."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command
from liza.crew.crew import find_crew
from liza.printing import printing
from liza.tasks import pause as verbs
from liza.tasks.pause import CheckpointRequest

app = create_app()


@declare_command(
    app, "pause", 'liza pause "the spec changes this afternoon"', position=Position(Heading.STEER, 10), in_sessions=True
)
def pause(
    why: Annotated[str, typer.Argument(help="The reason.")] = "",
    checkpoint: Annotated[
        bool, typer.Option("--checkpoint", help="Start nothing new until a person has reviewed the sprint.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Start no new work until `liza resume`. Running sessions continue.

    A planner may set a checkpoint, with its reason: it ends its planning, and you look before anything new starts."""
    crew = find_crew()
    result = verbs.checkpoint(crew, CheckpointRequest(why=why)) if checkpoint else verbs.pause(crew, why)
    printing.print_result(result, as_json)
