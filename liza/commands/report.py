"""``liza report``: record a discovery or an anomaly."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.breaker.report import ReportRequest
from liza.breaker.report import report as add_report
from liza.breaker.report import resolve as resolve_report
from liza.breaker.rules import board_reports
from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command, parse_details
from liza.crew.crew import find_crew
from liza.model.errors import UsageError
from liza.printing import printing

app = create_app()


@declare_command(
    app,
    "report",
    'liza report discovery "shop/cart.py adds prices as floats" --urgency deferred --recommend "use Decimal"\n'
    'liza report trade_off "cached per process" --detail what=cache --detail why=speed --detail debt_created=yes\n'
    'liza report resolve d-3 "the cart is replaced in the next sprint"',
    in_sessions=True,
    position=Position(Heading.AGENTS, 6),
)
def report(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="discovery|KIND|resolve",
            help="discovery, a kind of anomaly such as trade_off, spec_ambiguity, workaround, or resolve.",
        ),
    ],
    text: Annotated[
        str, typer.Argument(metavar="TEXT|ID", help="What others must know; for resolve, the id of a report.")
    ],
    why: Annotated[str | None, typer.Argument(metavar="[WHY]", help="For resolve: the reason.")] = None,
    urgency: Annotated[
        str | None,
        typer.Option("--urgency", metavar="immediate|deferred", help="Of a discovery: immediate wakes a planner now."),
    ] = None,
    recommend: Annotated[
        str | None, typer.Option("--recommend", metavar="TEXT", help="Of a discovery: what you would do.")
    ] = None,
    detail: Annotated[list[str] | None, typer.Option("--detail", metavar="K=V", help="A detail; repeatable.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Record a discovery or an anomaly; the run continues. Or resolve one.

    A discovery is a fault outside the scope of your task. It waits for a planner, which makes it a task
    (`liza task add --from-discovery ID`) or resolves it. An anomaly is a problem or a decision of your own task that
    others must know. `liza status` shows what is open. Only people and planners resolve."""
    given = {"urgency": urgency, "recommendation": recommend}
    details = {name: value for name, value in given.items() if value is not None}
    if kind == board_reports.RESOLVE:
        if detail or details or why is None:
            raise UsageError("resolve takes the id of a report and the reason", f'liza report resolve {text} "why"')
        printing.print_result(resolve_report(find_crew(), text, why), as_json)
        return
    if why is not None:
        raise UsageError(f"{why!r} is a second text; quote the whole text", f'liza report {kind} "…"')
    if details and kind != board_reports.DISCOVERY:
        raise UsageError(f"--urgency and --recommend are for a discovery, not for {kind}", "liza report --help")
    request = ReportRequest(kind=kind, text=text, details={**parse_details(detail or []), **details})
    printing.print_result(add_report(find_crew(), request), as_json)
