"""The commands for the board's own file."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from liza.cli.declare import JsonOption, create_app, declare_command
from liza.cli.entry_points import print_error
from liza.cli.render import printing
from liza.crew.crew import find_crew
from liza.rules.errors import UsageError

app = create_app()


@declare_command(app, "edit", "EDITOR=vim liza edit")
def edit(
    what: Annotated[str, typer.Argument(metavar="[board|goal]", help="The board, or .liza/specs/goal.md.")] = "board",
    kept: Annotated[
        Path | None, typer.Option("--from", metavar="F", help="Go on with a copy that was refused.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Edit the board in $EDITOR: a copy, checked and merged entry by entry when you are done."""
    from liza.verbs import edit as verbs

    printing.print_result(verbs.edit(find_crew(), what, kept), as_json)


@declare_command(
    app,
    "lock",
    "liza lock -- yq -i '.config.lease_duration = 600' .liza/state.yaml",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
def lock(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="What to run while nobody else writes.")],
    as_json: JsonOption = False,
) -> int:
    """Run a command with the board's lock held; its exit code is the answer. What it leaves is judged and told."""
    from liza.verbs.lock import lock as verb

    ran = verb(find_crew(), command)
    if ran.board_error is not None:
        print_error("liza", ran.board_error, as_json)
    return ran.exit_status


@declare_command(app, "restore", "liza restore --last-good")
def restore(
    last_good: Annotated[bool, typer.Option("--last-good", help="The newest board that can be read.")] = False,
    task: Annotated[
        str | None, typer.Option("--task", metavar="ID", help="A task, as the last verb left it, from the history.")
    ] = None,
    stop: Annotated[
        bool, typer.Option("--stop", help="End first whatever supervisors and sessions still work.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Bring back a board that is gone or cannot be read any more; what stands there now is kept in .liza/tx.

    With --task, one task whose status somebody wrote onto the board.
    """
    from liza.verbs import restore as verbs

    if task is not None and (last_good or stop):
        raise UsageError(
            "--task brings back one task, --last-good and --stop the whole board",
            f"liza restore --task {shlex.quote(task)}",
        )
    if task is not None:
        printing.print_result(verbs.restore_task(find_crew(), task), as_json)
    else:
        printing.print_result(verbs.restore(verbs.find_crew_or_lost(), last_good, stop), as_json)
