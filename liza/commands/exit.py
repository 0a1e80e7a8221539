"""``liza exit``: record the result of this run, for scripts."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command
from liza.crew.crew import find_crew
from liza.printing import printing
from liza.tasks.handoff import exit_run

app = create_app()


@declare_command(app, "exit", "liza exit 42", in_sessions=True, position=Position(Heading.AGENTS, 8))
def exit_command(
    code: Annotated[str, typer.Argument(metavar="0|1|42", help="0 done, 1 failed, 42 start a new session.")],
    as_json: JsonOption = False,
) -> None:
    """Record the result of this run, for scripts. It overrides the exit code of the program."""
    printing.print_result(exit_run(find_crew(), code), as_json)
