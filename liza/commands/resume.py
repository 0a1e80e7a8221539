"""``liza resume``: let a paused crew continue."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, Process, create_app, declare_command
from liza.crew.crew import find_crew
from liza.printing import printing
from liza.tasks import pause as verbs

app = create_app()


@declare_command(
    app,
    "resume",
    'liza resume\nliza resume "the spec names two formats; task-3 fixes it"',
    process=Process.DIRECT_AT_TERMINAL,
    position=Position(Heading.STEER, 11),
)
def resume(
    root_cause: Annotated[
        str | None,
        typer.Argument(metavar="[ROOT_CAUSE]", help="Why the circuit breaker tripped, and what was changed."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Let a paused crew continue, whatever paused it.

    After a trip of the circuit breaker it needs the root cause, and asks for it at a terminal. Refused while a budget
    is used up, with the command that raises the limit."""
    crew = find_crew()
    if root_cause is None and sys.stdin.isatty() and sys.stdout.isatty():
        tripped = verbs.asks_root_cause(crew.board)
        if tripped is not None:
            printing.print_wrapped(tripped)
            root_cause = typer.prompt("Its root cause, and what was changed", prompt_suffix="? ")
    printing.print_result(verbs.resume(crew, root_cause), as_json)
