"""``liza submit``: submit the committed work of this run's task for review."""

from __future__ import annotations

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command
from liza.crew.crew import find_crew
from liza.printing import printing
from liza.tasks.submit import submit as submit_work

app = create_app()


@declare_command(
    app,
    "submit",
    "git commit -am 'Round half up' && liza submit",
    in_sessions=True,
    position=Position(Heading.AGENTS, 2),
)
def submit(as_json: JsonOption = False) -> None:
    """Submit the committed work of this run's task for review."""
    printing.print_result(submit_work(find_crew()), as_json)
