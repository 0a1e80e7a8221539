"""``liza mcp``: serve tasks to a program that Liza did not start, and show how programs are told of it."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, Process, create_app, declare_command, declare_group
from liza.model.errors import Missing
from liza.printing import printing
from liza.project import mcp_clients
from liza.system.installation import extra_command

app = create_app("Serve tasks to agent programs over MCP.")


@declare_group(app, "liza mcp", process=Process.DIRECT, position=Position(Heading.START, 16))
def mcp(ctx: typer.Context) -> None:
    """Serve tasks to a program that Liza did not start, by the Model Context Protocol on stdin and stdout.

    The program starts it, as `liza mcp install NAME` configures. A task is claimed for the program's own worktree. The
    claim lasts until stdin is closed: then the work is saved, and the task is free.
    """
    if ctx.invoked_subcommand is not None:
        return
    if find_spec("mcp") is None:
        raise Missing("`liza mcp` needs the package mcp", extra_command("mcp"))
    sys.stdout.flush()
    # A fresh process: without the command line it is 20 MB smaller.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "liza.mcp.mcp_server"])


@declare_command(
    app, "install", "liza mcp install claude\nliza mcp install codex --write", position=Position(Heading.START, 17)
)
def install(
    program: Annotated[str, typer.Argument(help="The program, such as claude, codex or gemini.")],
    write: Annotated[bool, typer.Option("--write", help="Write it; the rest of the files stays.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print what tells a program of `liza mcp`, and where it belongs. With --write, write it there.

    For claude it also has the permission to call the tools of Liza, which a session in the background needs.
    """
    text = mcp_clients.install(program, is_written=write)
    if as_json:
        printing.print_json({"program": program, "file": str(mcp_clients.load_row(program).path), "text": text})
    else:
        printing.print_text(text)
