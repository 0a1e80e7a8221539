"""``liza ready``: print the brief of this run, and record that the agent has read it."""

from __future__ import annotations

from liza.briefs import ready as ready_verbs
from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command
from liza.crew.crew import find_crew
from liza.printing import printing

app = create_app()


@declare_command(app, "ready", "liza ready", in_sessions=True, position=Position(Heading.AGENTS, 1))
def ready(as_json: JsonOption = False) -> None:
    """Print the brief of this run, and record that the agent has read it. The first command of a session."""
    crew = find_crew()
    result = ready_verbs.ready(crew)
    if as_json:
        printing.print_result(result, as_json)
    else:
        printing.print_text(str(result.details["brief"]))
    ready_verbs.acknowledge_messages(crew, result.details["messages"])
