"""``liza command-server``: start, stop and show the command server."""

from __future__ import annotations

from liza.commands._declare import Heading, JsonOption, Position, Process, create_app, declare_command
from liza.model.value_classes import asdict
from liza.printing import printing
from liza.system import server_control
from liza.system.server_control import ServerState

app = create_app(
    "A background process that makes short commands start faster. It ends by itself after 15 minutes without a command."
)


def _print_state(server: ServerState, as_json: bool) -> None:
    printing.print_json(asdict(server)) if as_json else printing.print_text(server.describe())


@declare_command(app, "start", "liza command-server start", process=Process.DIRECT, position=Position(Heading.BOARD, 9))
def start(as_json: JsonOption = False) -> None:
    """Start the server. It ends after 15 minutes without a command."""
    _print_state(server_control.start(), as_json)


@declare_command(app, "stop", "liza command-server stop", process=Process.DIRECT, position=Position(Heading.BOARD, 10))
def stop(as_json: JsonOption = False) -> None:
    """End the server, after the commands that it runs."""
    server_control.stop()
    _print_state(server_control.find_server(), as_json)


@declare_command(
    app, "status", "liza command-server status", process=Process.DIRECT, position=Position(Heading.BOARD, 8)
)
def status(as_json: JsonOption = False) -> None:
    """Show whether a server runs your commands; or why none does."""
    _print_state(server_control.find_server(), as_json)
