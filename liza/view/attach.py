"""attach: find the terminal of an agent's program, or the stream of a session over ACP."""

from __future__ import annotations

from collections.abc import Iterator

from liza.api.prompts import PromptRequest, submit_prompt
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.model.errors import Refused
from liza.model.paths import agent_of, parse_agent_id, split_run
from liza.model.value_classes import Value
from liza.programs import liveness
from liza.programs.presets import command_line
from liza.programs.rules.session_events import LoggedEvent
from liza.programs.terminal import tmux
from liza.view import logs, session_log
from liza.view.logs import find_newest_run

SOURCE = "attach"
FIRST_LINES = 200


class TerminalAttachment(Value):
    """Command that attaches a person's terminal to that of a run."""

    agent: str
    run: str
    command: tuple[str, ...]


class StreamAttachment(Value):
    """A session over ACP: it has no terminal; its events are shown, and a line is a prompt."""

    agent: str
    run: str


def attach(crew: Crew, name: str, *, read_only: bool = False) -> TerminalAttachment | StreamAttachment:
    """Return the attach command for an agent's newest run, or for the named run. Raises UnknownId, Refused."""
    require_person(crew, planner=False)
    agent = split_run(name)[0] if "." in name else parse_agent_id(name)
    other = logs.find_host_error(crew, crew.board.read(), agent, name, "attach") if crew.is_on_server else None
    if other is not None and not crew.is_supervised_here(agent):
        raise other
    run = name if "." in name else find_newest_run(crew, parse_agent_id(name))
    pane = tmux.find_pane(crew.paths.root, run)
    if pane is not None:
        return TerminalAttachment(agent_of(run), run, (*pane.attach_argv, *(("-r",) if read_only else ())))
    directory = crew.run_dir(run)
    if command_line.read_order(directory.path) is not None and liveness.is_session_living(directory):
        return StreamAttachment(agent_of(run), run)
    raise Refused(
        f"{run} has no terminal to attach to; sessions of `liza up --tmux` have one", f"liza logs {agent_of(run)} -f"
    )


def follow_stream(crew: Crew, session: StreamAttachment) -> Iterator[LoggedEvent]:
    """Yield the last events of the session, then new ones: of this run, and of the agent's next runs."""
    recent, positions = session_log.read_recent(crew, [session.run], FIRST_LINES, None)
    yield from recent
    yield from session_log.follow(crew, [session.agent], positions)


def send_line(crew: Crew, agent: str, line: str) -> str:
    """Send a line as a prompt to the agent's newest run. Return what became of it. Raises RunIsOver, LizaError."""
    by = require_person(crew, planner=False)
    run = find_newest_run(crew, agent)
    answer = submit_prompt(crew, by, PromptRequest(run_id=run, content=line, source=SOURCE))
    return "it waits for the end of the turn" if answer.queued else "sent"
