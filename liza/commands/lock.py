"""``liza lock``: run a command while holding the board's lock, and return its exit code."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, Process, create_app, declare_command
from liza.crew.crew import find_crew
from liza.printing.error_output import print_error
from liza.tasks.edit import lock as verb

app = create_app()


@declare_command(
    app,
    "lock",
    "liza lock -- yq -i '.config.lease_duration = 600' .liza/state.yaml",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    process=Process.DIRECT_AT_TERMINAL,
    position=Position(Heading.BOARD, 6),
)
def lock(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The command to run.")],
    as_json: JsonOption = False,
) -> int:
    """Run a command while holding the board's lock, and return its exit code. The board is checked afterwards."""
    result = verb(find_crew(), command)
    if result.board_error is not None:
        print_error("liza", result.board_error, as_json)
    return result.exit_status
