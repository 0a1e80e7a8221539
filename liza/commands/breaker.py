"""``liza breaker``: show the circuit breaker and resolve its trips."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.cli.declare import Heading, JsonOption, Position, create_app, declare_command, declare_group
from liza.cli.render import printing, render_breaker
from liza.crew.crew import find_crew
from liza.verbs import breaker as verbs

app = create_app("Show the circuit breaker and resolve its trips.")


@declare_group(app, "liza breaker", position=Position(Heading.STEER, 24))
def breaker(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """Show the circuit breaker: what tripped, the evidence, and the resolved trips with their root causes."""
    if ctx.invoked_subcommand is not None:
        return
    shown = verbs.show_breaker(find_crew())
    printing.print_json(shown) if as_json else printing.print_wrapped(
        render_breaker.format_breaker(shown, printing.wants_colours())
    )


@declare_command(
    app,
    "resolve",
    'liza breaker resolve "the spec names two formats; task-3 fixes it"',
    position=Position(Heading.STEER, 25),
)
def resolve(
    root_cause: Annotated[str, typer.Argument(metavar="ROOT_CAUSE", help="Why it tripped, and what was changed.")],
    as_json: JsonOption = False,
) -> None:
    """Resolve all open trips with their root cause, and clear the signals that they set.

    A planner may do it, unless a trip is a halt.
    """
    printing.print_result(verbs.resolve(find_crew(), root_cause), as_json)
