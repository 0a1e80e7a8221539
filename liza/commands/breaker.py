"""``liza breaker``: show the circuit breaker and resolve its trips."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from liza.breaker import breaker as verbs
from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command, declare_group
from liza.crew.crew import find_crew
from liza.model.errors import HINT_LABEL
from liza.printing import printing
from liza.printing.columns import paint
from liza.tasks import pause
from liza.text.formats import format_time

app = create_app("Show the circuit breaker and resolve its trips.")


@declare_group(app, "liza breaker", position=Position(Heading.STEER, 24))
def breaker(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """Show the circuit breaker: what tripped, the evidence, and the resolved trips with their root causes."""
    if ctx.invoked_subcommand is not None:
        return
    shown = verbs.show_breaker(find_crew().board)
    printing.print_json(shown) if as_json else printing.print_wrapped(format_breaker(shown, printing.wants_colours()))


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
    printing.print_result(pause.resolve_trips(find_crew(), root_cause), as_json)


Row = Mapping[str, Any]
_COLOURS = {"warn": "yellow", "checkpoint": "red", "halt": "red"}
MAX_RESOLVED = 10


def format_breaker(shown: Row, colour: bool) -> str:
    """Return the status, the open trips with their evidence, and the newest resolved ones."""
    parts = [f"circuit breaker: {paint(shown['status'], 'bold', colour)}"]
    parts += ["\n".join(_open_lines(trip, colour)) for trip in shown["open"]]
    resolved = shown["resolved"]
    if resolved:
        lines = [line for trip in resolved[:MAX_RESOLVED] for line in _resolved_lines(trip)]
        lines += [f"  and {len(resolved) - MAX_RESOLVED} more: liza breaker --json"] * (len(resolved) > MAX_RESOLVED)
        parts.append("\n".join(["resolved:", *lines]))
    if shown["open"]:
        parts.append(f"{HINT_LABEL}{shown['next']}")
    return "\n\n".join(parts)


def _open_lines(trip: Row, colour: bool) -> Iterator[str]:
    severity = paint(trip["severity"], _COLOURS.get(trip["severity"], "bold"), colour)
    yield f"{severity}  {trip['trigger']}  {format_time(trip['time'])}"
    yield f"  {trip['detail']}"
    yield from (f"  evidence: {line}" for line in trip["evidence"])


def _resolved_lines(trip: Row) -> Iterator[str]:
    yield f"  {format_time(trip['time'])}  {trip['severity']}  {trip['trigger']}: {trip['detail']}"
    yield f"    {format_time(trip['resolved'])}  {trip['resolved_by']}: {trip['root_cause']}"
