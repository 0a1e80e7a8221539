"""``liza help``: list the commands, or show the help of one."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command
from liza.printing import printing

app = create_app()


@declare_command(
    app, "help", "liza help --all\nliza help task add", in_sessions=True, position=Position(Heading.LOOK, 16)
)
def help_(
    ctx: typer.Context,
    words: Annotated[list[str] | None, typer.Argument(metavar="[COMMAND]...", help="A command.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="List all commands, in groups.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the help of a command. Without COMMAND: the commands of every day, or with --all all of them.

    --json lists all commands, or those of COMMAND, with their groups.
    """
    root: Any = ctx.find_root().command  # The whole application: `cli.app.CommandGroup`.
    if as_json:
        printing.print_json({"commands": root.list_help(words or ())})
    elif words:
        with root.make_context("liza", [*words, "--help"]) as inner:
            root.invoke(inner)
    else:
        printing.print_text(root.format_all(ctx.find_root()) if all_ else ctx.find_root().get_help())
