"""``liza agents``: show the agents, what each does, and why an idle one is idle."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command, read_text
from liza.commands._last_copy import show_last_copy
from liza.crew.crew import find_crew
from liza.model.errors import UsageError
from liza.printing import printing, render_crew, render_task
from liza.view import agents as verbs

app = create_app()


@declare_command(app, "agents", "liza agents coder-1", in_sessions=True, position=Position(Heading.LOOK, 9))
@show_last_copy
def agents(
    agent: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Only this agent, with its work record and its history.")
    ] = None,
    export: Annotated[bool, typer.Option("--export", help="Print the agent's work record for another crew.")] = False,
    import_: Annotated[
        str | None,
        typer.Option("--import", metavar="FILE", help="Add a record that another crew exported; - is stdin."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the agents, what each does, and why an idle one is idle. With ID: its work record, too."""
    crew = find_crew()
    if import_ is not None:
        printing.print_result(verbs.import_agent(crew, read_text(import_).encode()), as_json)
        return
    if export:
        if agent is None:
            raise UsageError("--export needs the agent whose record it prints", "liza agents coder-1 --export")
        printing.print_text(verbs.export_agent(crew, agent).decode().rstrip("\n"))
        return
    if agent is not None:
        details = verbs.show_agent(crew, agent)
        printing.print_json(details) if as_json else printing.print_wrapped(
            render_task.format_agent(details, printing.wants_colours())
        )
        return
    lines = verbs.list_agents(crew)
    printing.print_json({"agents": [line.row for line in lines]}) if as_json else printing.print_wrapped(
        render_crew.format_agents(lines, printing.wants_colours())
    )
