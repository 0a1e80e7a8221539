"""``liza-agent``: the supervisor of one agent."""

from __future__ import annotations

import os
import stat
import sys
from typing import Annotated

import typer

from liza.commands._declare import JsonOption, create_app, declare_command
from liza.crew.crew import find_crew
from liza.model.narration import LIZA, Detail
from liza.printing import printing
from liza.supervisor.main import SupervisorOptions
from liza.supervisor.main import supervise as verb

app = create_app()


@declare_command(app, "liza-agent", "liza-agent coder-1 --program script:./agent.sh")
def supervise(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Such as coder-1, code-reviewer-1, planner-1.")],
    program: Annotated[str | None, typer.Option("--program", help="Its program; default: as configured.")] = None,
    terminal: Annotated[
        bool, typer.Option("--tmux", help="Run its sessions in a terminal, for `liza attach`.")
    ] = False,
    only: Annotated[str | None, typer.Option("--only", hidden=True)] = None,
    until_eof: Annotated[bool, typer.Option("--until-eof", hidden=True)] = False,
    relayed: Annotated[bool, typer.Option("--relayed", hidden=True)] = False,
    keeps_server: Annotated[bool, typer.Option("--keep-server", hidden=True)] = False,
    quiet: Annotated[bool, typer.Option("--quiet", hidden=True)] = False,
    as_json: JsonOption = False,
) -> int:
    """Supervise one agent: claim its tasks, run its program, watch it, submit its work for review, merge.

    Ctrl+C ends the session properly and stops; a second Ctrl+C stops at once.
    """
    options = SupervisorOptions(until_eof, relayed, terminal, keeps_server, only)
    return run_supervisor(agent, program, options, quiet=quiet)


def run_supervisor(agent: str, program: str | None, options: SupervisorOptions, *, quiet: bool) -> int:
    """Run the supervisor. Notices go to stderr with the agent's name, and with the time unless `up` adds it.

    ``quiet``: without details.
    """

    def notify(text: str) -> None:
        if quiet and isinstance(text, Detail):
            return
        line = text if text.startswith(f"{LIZA}  ") else f"{agent}  {text}"
        # Without its `up`, stderr is a log file.
        has_reader = options.relayed and stat.S_ISFIFO(os.fstat(sys.stderr.fileno()).st_mode)
        printing.print_notice(line if has_reader else f"{printing.time_of_day()}  {line}")

    return verb(find_crew(), agent, program, notify, options)
