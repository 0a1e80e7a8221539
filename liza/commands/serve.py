"""``liza serve``: serve the worker API at .liza/run/api.sock and on 127.0.0.1."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.api import api_server
from liza.commands._declare import Heading, JsonOption, Position, Process, create_app, declare_command
from liza.crew.crew import find_crew
from liza.model.errors import Missing
from liza.printing import printing
from liza.system import installation
from liza.view.agents import list_states

app = create_app()


@declare_command(app, "serve", "liza serve", process=Process.DIRECT, position=Position(Heading.START, 13))
def serve(
    with_crew: Annotated[bool, typer.Option("--with-crew", hidden=True)] = False,
    ready_fd: Annotated[int | None, typer.Option("--ready-fd", hidden=True)] = None,
    as_json: JsonOption = False,
) -> int:
    """Serve the worker API at .liza/run/api.sock and on 127.0.0.1. A running crew starts it itself.

    Ctrl+C stops it. The sessions continue without it.
    """
    try:
        from liza.api.serve import serve as run_server
    except ImportError as error:
        # Not installed, or installed for another Python: no bug of Liza.
        step = installation.install_command("--force-reinstall", *api_server.PACKAGES)
        raise Missing(f"a package of the server cannot be imported: {error}", step) from error

    def notify(text: str) -> None:
        printing.print_notice(f"{printing.time_of_day()}  {text}")

    return run_server(find_crew(), notify, list_states, with_crew=with_crew, ready_fd=ready_fd)
