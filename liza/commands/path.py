"""``liza path``: print the path of a task's worktree."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command
from liza.crew.crew import find_crew
from liza.printing import printing
from liza.tasks.diff import find_worktree

app = create_app()


@declare_command(app, "path", 'cd "$(liza path invoice-model)"', in_sessions=True, position=Position(Heading.LOOK, 5))
def path(
    task_id: Annotated[str, typer.Argument(metavar="ID", help="The task.")],
    as_json: JsonOption = False,
) -> None:
    """Print the path of a task's worktree. It stays the same until the task is closed."""
    directory = find_worktree(find_crew(), task_id)
    if as_json:
        printing.print_json({"task": task_id, "path": directory})
    else:
        # For `cd "$(liza path ID)"`: exactly the bytes of the path.
        sys.stdout.buffer.write(os.fsencode(f"{directory}\n"))
