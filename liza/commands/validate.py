"""``liza validate``: check a board against all rules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command, refuse_path_of_session
from liza.commands._last_copy import show_last_copy
from liza.printing import printing, render_crew
from liza.recovery.validate import validate as verb

app = create_app()


@declare_command(
    app, "validate", "liza validate .liza/state.yaml", in_sessions=True, position=Position(Heading.LOOK, 12)
)
@show_last_copy
def validate(
    path: Annotated[Path | None, typer.Argument(metavar="[PATH]", help="A board, or a directory with one.")] = None,
    as_json: JsonOption = False,
) -> int:
    """Check a board against all rules. Print each violation and exit 1; exit 4 if the board cannot be read.

    With PATH it needs no crew.
    """
    if path is not None:
        refuse_path_of_session(path, "leave it out", "liza validate")
    result = verb(path)
    if as_json:
        printing.print_json(result)
    else:
        printing.print_wrapped(render_crew.format_validation(result))
    return 0 if result["valid"] else 1 if result["readable"] else 4
