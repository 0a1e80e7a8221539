"""``liza resume``: remove the signals of `liza pause`."""

from __future__ import annotations

from liza.cli.declare import Heading, JsonOption, Position, create_app, declare_command
from liza.cli.render import printing
from liza.crew.crew import find_crew
from liza.verbs.pause import resume as verb

app = create_app()


@declare_command(app, "resume", "liza resume", position=Position(Heading.STEER, 11))
def resume(as_json: JsonOption = False) -> None:
    """Remove the signals of `liza pause`. Refused while a budget is used up: raise it with `liza edit`."""
    printing.print_result(verb(find_crew()), as_json)
