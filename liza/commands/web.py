"""``liza web``: serve the crew as a page for browsers and phones."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from liza.commands._declare import Heading, Position, Process, create_app, declare_command
from liza.crew.crew import find_crew
from liza.model.errors import Missing, UsageError
from liza.printing import printing
from liza.system.installation import extra_command

app = create_app()


@declare_command(
    app,
    "web",
    "liza web\nliza web --port 8421\nliza web --log-out",
    process=Process.DIRECT,
    position=Position(Heading.LOOK, 3),
)
def web(
    port: Annotated[int, typer.Option("--port", help="Port on 127.0.0.1.", min=0, max=65535)] = 8420,
    host_name: Annotated[str, typer.Option("--host-name", help="Name under which your tunnel shows it.")] = "",
    read_only: Annotated[bool, typer.Option("--read-only", help="Only look: no form changes anything.")] = False,
    log_out: Annotated[bool, typer.Option("--log-out", help="Log all browsers out, and end.")] = False,
) -> int:
    """Serve the crew as a page for browsers and phones, on 127.0.0.1. Ctrl+C stops it."""
    crew = find_crew()
    if log_out:
        from liza.ui.web.login import log_out_all

        log_out_all(crew)
        printing.print_now("all browsers are logged out")
        return 0
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("liza web needs a terminal: it prints there the code for the login", "liza web")
    try:
        from liza.ui.web.page_server import WebOptions, check_packages, serve_page

        check_packages()
    except Exception as error:
        # A package of the extra that is too old, or was installed for another Python, fails with any error.
        reason = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise Missing(f"liza web needs the extra web: {reason}", extra_command("web")) from error
    return serve_page(crew, WebOptions(port=port, host_name=host_name, is_read_only=read_only), printing.print_now)
