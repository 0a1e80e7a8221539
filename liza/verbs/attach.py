"""attach: the terminal of an agent's program."""

from __future__ import annotations

from dataclasses import dataclass

from liza.crew.caller import human_or
from liza.crew.crew import Crew
from liza.programs.terminal import tmux
from liza.rules.errors import Refused
from liza.rules.paths import agent_id, agent_of
from liza.verbs.logs import newest_run


@dataclass(frozen=True)
class Seat:
    """The command that puts a person at the terminal of a run."""

    agent: str
    run: str
    command: tuple[str, ...]


def attach(crew: Crew, name: str, *, read_only: bool = False) -> Seat:
    """A seat at the terminal of an agent's newest run, or of the run that was named. Raises UnknownId, Refused."""
    human_or(crew, planner=False)
    run = name if "." in name else newest_run(crew, agent_id(name))
    pane = tmux.pane(crew.paths.root, run)
    if pane is None:
        raise Refused(
            f"{run} has no terminal to attach to; sessions of `liza up --tmux` have one",
            f"liza logs {agent_of(run)} -f",
        )
    return Seat(agent_of(run), run, (*pane.words, *(("-r",) if read_only else ())))
