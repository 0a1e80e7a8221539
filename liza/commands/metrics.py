"""``liza metrics``: show times, reviews and usage of the sprint."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command, split_names
from liza.commands._last_copy import show_last_copy
from liza.crew.crew import find_crew
from liza.printing import printing, render_metrics
from liza.view.metrics import metrics as verb
from liza.view.metrics import usage_by

app = create_app()


@declare_command(
    app,
    "metrics",
    "liza metrics\nliza metrics --all\nliza metrics --by model,day --json",
    position=Position(Heading.LOOK, 11),
)
@show_last_copy
def metrics(
    by: Annotated[
        str | None,
        typer.Option("--by", help="Only usage: by task, agent, program, account, model, tool, outcome or day."),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All tasks, messages, and the usage in all groups.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show how long the tasks took, what the reviews said, and what the sessions used; --json has all of --all.

    Each session counts once: an ended one as recorded, a living one as far as it was measured. By model and by tool,
    only sessions whose runtime reports that are counted. Days are in UTC.
    """
    groups = split_names(by)
    if groups is not None:
        usage = usage_by(find_crew(), groups)
        printing.print_json(usage) if as_json else printing.print_wrapped(render_metrics.format_usage(usage))
        return
    values = verb(find_crew())
    whole = render_metrics.format_metrics if all_ else render_metrics.format_summary
    printing.print_json(values) if as_json else printing.print_wrapped(whole(values))
