"""attach: find the terminal of an agent's program."""

from __future__ import annotations

from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.programs.terminal import tmux
from liza.rules.errors import Refused
from liza.rules.paths import agent_of, parse_agent_id
from liza.rules.value_classes import Value
from liza.verbs.logs import find_newest_run


class TerminalAttachment(Value):
    """Command that attaches a person's terminal to that of a run."""

    agent: str
    run: str
    command: tuple[str, ...]


def attach(crew: Crew, name: str, *, read_only: bool = False) -> TerminalAttachment:
    """Return the attach command for an agent's newest run, or for the named run. Raises UnknownId, Refused."""
    require_person(crew, planner=False)
    run = name if "." in name else find_newest_run(crew, parse_agent_id(name))
    pane = tmux.find_pane(crew.paths.root, run)
    if pane is None:
        raise Refused(
            f"{run} has no terminal to attach to; sessions of `liza up --tmux` have one",
            f"liza logs {agent_of(run)} -f",
        )
    return TerminalAttachment(agent_of(run), run, (*pane.attach_argv, *(("-r",) if read_only else ())))
