"""``liza-agent``: the supervisor of one agent."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.cli.declare import JsonOption, create_app, declare_command
from liza.cli.render import printing
from liza.crew.crew import find_crew

app = create_app()


@declare_command(app, "liza-agent", "liza-agent coder-1 --program script:./agent.sh")
def supervise(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Such as coder-1, code-reviewer-1, planner-1.")],
    program: Annotated[str | None, typer.Option("--program", help="What it runs; default: as the tables say.")] = None,
    terminal: Annotated[
        bool, typer.Option("--tmux", help="Give its sessions a terminal, to look at with `liza attach`.")
    ] = False,
    until_eof: Annotated[bool, typer.Option("--until-eof", hidden=True)] = False,
    as_json: JsonOption = False,
) -> int:
    """Supervise one agent: take its tasks, start its program, watch it, bring its work to review, merge.

    Ctrl+C stops politely, a second time firmly.
    """
    return run_supervisor(agent, program, until_eof, terminal)


def run_supervisor(agent: str, program: str | None, until_eof: bool = False, terminal: bool = False) -> int:
    """Supervise; each thing that is said goes to stderr behind the agent's name, with the time unless `up` adds it."""
    from liza.rules.reports.narration import LIZA
    from liza.supervisor.main import supervise as verb

    def told(text: str) -> None:
        named = text if text.startswith(f"{LIZA}  ") else f"{agent}  {text}"
        printing.print_notice(named if until_eof else f"{printing.time_of_day()}  {named}")

    return verb(find_crew(), agent, program, told, until_eof=until_eof, terminal=terminal)
