"""``liza confine``: run a command, or a shell, in the box of a worktree."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, Process, create_app, declare_command
from liza.crew.crew import find_crew
from liza.project.commands import confine as verb

app = create_app()
_SHELL = "/bin/sh"


@declare_command(
    app,
    "confine",
    "liza confine invoice-model\nliza confine coder-1 -- git log -3",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    process=Process.DIRECT,
    position=Position(Heading.LOOK, 15),
)
def confine(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TASK|AGENT] [-- CMD...]",
            help="Whose worktree, unless you are in one; and the command. Default: your shell.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a command, or a shell, in the box of a worktree: with the files and the network that its agent has.

    --json comes first, and is only about errors of Liza: the output is that of the command.

    It can write the worktree and nothing else; git can only be read. A session that works there goes on.
    """
    boxed = verb(find_crew(), words or (), Path.cwd(), os.environ.get("SHELL") or _SHELL)
    os.chdir(boxed.directory)
    os.execve(boxed.argv[0], boxed.argv, dict(boxed.environ))
