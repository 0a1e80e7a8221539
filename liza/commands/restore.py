"""``liza restore``: restore a board that is missing or unreadable."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.printing import printing
from liza.recovery import restore as verbs
from liza.supervisor.down import down

app = create_app()


@declare_command(app, "restore", "liza restore --last-good", position=Position(Heading.BOARD, 7))
def restore(
    last_good: Annotated[bool, typer.Option("--last-good", help="Restore the newest readable board.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="First stop all supervisors and sessions.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Restore a board that is missing or unreadable. The present file is kept in .liza/tx."""
    printing.print_result(verbs.restore(verbs.find_crew_or_lost(), last_good, _down_now if stop else None), as_json)


def _down_now(crew: Crew) -> Result:
    return down(crew, now=True)
