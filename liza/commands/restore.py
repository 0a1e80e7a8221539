"""``liza restore``: restore a board that is missing or unreadable."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from liza.cli.declare import Heading, JsonOption, Position, create_app, declare_command
from liza.cli.render import printing
from liza.crew.crew import find_crew
from liza.rules.errors import UsageError
from liza.verbs import restore as verbs

app = create_app()


@declare_command(app, "restore", "liza restore --last-good", position=Position(Heading.BOARD, 7))
def restore(
    last_good: Annotated[bool, typer.Option("--last-good", help="Restore the newest readable board.")] = False,
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="ID", help="Restore one task from the history, as the last command left it."),
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="First stop all supervisors and sessions.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Restore a board that is missing or unreadable. The present file is kept in .liza/tx.

    With --task, restore one task whose status was edited by hand.
    """
    if task is not None and (last_good or stop):
        raise UsageError(
            "--task restores one task, --last-good and --stop apply to the whole board",
            f"liza restore --task {shlex.quote(task)}",
        )
    if task is not None:
        printing.print_result(verbs.restore_task(find_crew(), task), as_json)
    else:
        printing.print_result(verbs.restore(verbs.find_crew_or_lost(), last_good, stop), as_json)
