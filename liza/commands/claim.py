"""``liza claim``: claim a task by hand."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command
from liza.crew.crew import find_crew
from liza.printing import printing
from liza.tasks.claim import claim as claim_task

app = create_app()


@declare_command(app, "claim", "liza claim invoice-model --agent coder-1", position=Position(Heading.STEER, 8))
def claim(
    agent: Annotated[str, typer.Option("--agent", metavar="A", help="The agent, such as coder-1.")],
    task_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The task; default: the first in order.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Claim a task by hand: create its worktree and start its lease. A code-reviewer claims a review.

    It does not run the set-up command (config.sandbox_setup): only a supervisor runs it. The output names the set-up
    command if you have to run it in this worktree before the test command. If a virtual environment is activated, run
    `deactivate` first: otherwise the tests may use your checkout.
    """
    printing.print_result(claim_task(find_crew(), agent, task_id), as_json)
