"""Commands for the board's file."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from liza.cli.declare import JsonOption, Process, create_app, declare_command
from liza.cli.entry_points import print_error
from liza.cli.render import printing
from liza.crew.crew import find_crew
from liza.rules.errors import UsageError

app = create_app()


@declare_command(app, "archive", "liza archive --keep 20")
def archive(
    keep: Annotated[int, typer.Option("--keep", metavar="N", help="Leave the N newest closed tasks.")] = 0,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Move nothing: write missing files, mark former copies, count the tasks anew."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Move closed tasks from the board to .liza/archive. They are still shown, counted and satisfy dependencies.

    It also happens by itself when the board has more closed tasks than config.archive_after.
    """
    from liza.verbs import archive as verbs

    crew = find_crew()
    printing.print_result(verbs.repair(crew) if repair else verbs.archive(crew, keep), as_json)


@declare_command(app, "gc", "liza gc --dry-run")
def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be freed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Free space below .liza: compress old run directories and old logs, delete files of crashed writers.

    A run is old if its agent has 20 newer ones, no open task names it and its session is over. The log of a merge is
    old a day after its last line, once its task is closed; logs up to 4 KB stay. Nothing is deleted that is not saved,
    and nothing that a living process uses.
    """
    from liza.verbs.gc import gc as verb

    printing.print_result(verb(find_crew(), dry_run), as_json)


@declare_command(app, "edit", "EDITOR=vim liza edit", process=Process.DIRECT_AT_TERMINAL)
def edit(
    what: Annotated[str, typer.Argument(metavar="[board|goal]", help="The board, or .liza/specs/goal.md.")] = "board",
    kept: Annotated[
        Path | None, typer.Option("--from", metavar="F", help="Continue with a copy that was refused.")
    ] = None,
    goal: Annotated[
        bool, typer.Option("--goal", help="The description of the goal, and which file is its document.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Edit a copy of the board in $EDITOR. The copy is checked and merged entry by entry when you finish."""
    from liza.verbs import edit as verbs

    if goal:
        if kept is not None or what != "board":
            raise UsageError("--goal cannot be combined with a copy or another text", "liza edit --goal")
        printing.print_result(verbs.edit_goal(find_crew()), as_json)
        return
    printing.print_result(verbs.edit(find_crew(), what, kept), as_json)


@declare_command(
    app,
    "lock",
    "liza lock -- yq -i '.config.lease_duration = 600' .liza/state.yaml",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    process=Process.DIRECT_AT_TERMINAL,
)
def lock(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The command to run.")],
    as_json: JsonOption = False,
) -> int:
    """Run a command while holding the board's lock, and return its exit code. The board is checked afterwards."""
    from liza.verbs.lock import lock as verb

    result = verb(find_crew(), command)
    if result.board_error is not None:
        print_error("liza", result.board_error, as_json)
    return result.exit_status


@declare_command(app, "restore", "liza restore --last-good")
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
    from liza.verbs import restore as verbs

    if task is not None and (last_good or stop):
        raise UsageError(
            "--task restores one task, --last-good and --stop apply to the whole board",
            f"liza restore --task {shlex.quote(task)}",
        )
    if task is not None:
        printing.print_result(verbs.restore_task(find_crew(), task), as_json)
    else:
        printing.print_result(verbs.restore(verbs.find_crew_or_lost(), last_good, stop), as_json)
