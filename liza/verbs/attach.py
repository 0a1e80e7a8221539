"""attach: find the terminal of an agent's program, or the stream of a session over ACP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from liza.crew import run_state
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.programs.presets import sidecar_order
from liza.programs.terminal import tmux
from liza.rules.acp.stream_text import format_stream_line
from liza.rules.errors import Refused
from liza.rules.paths import agent_of, parse_agent_id
from liza.rules.value_classes import Value
from liza.verbs.logs import find_newest_run, follow_output, logs
from liza.worker.api_requests import PromptRequest
from liza.worker.prompts import submit_prompt

SOURCE = "attach"
FIRST_LINES = 200


class TerminalAttachment(Value):
    """Command that attaches a person's terminal to that of a run."""

    agent: str
    run: str
    command: tuple[str, ...]


class StreamAttachment(Value):
    """A session over ACP: it has no terminal; its output is shown as text, and a line is a prompt."""

    agent: str
    run: str


def attach(crew: Crew, name: str, *, read_only: bool = False) -> TerminalAttachment | StreamAttachment:
    """Return the attach command for an agent's newest run, or for the named run. Raises UnknownId, Refused."""
    require_person(crew, planner=False)
    run = name if "." in name else find_newest_run(crew, parse_agent_id(name))
    pane = tmux.find_pane(crew.paths.root, run)
    if pane is not None:
        return TerminalAttachment(agent_of(run), run, (*pane.attach_argv, *(("-r",) if read_only else ())))
    directory = crew.run_dir(run)
    if sidecar_order.read_order(directory.path) is not None and run_state.is_session_living(directory):
        return StreamAttachment(agent_of(run), run)
    raise Refused(
        f"{run} has no terminal to attach to; sessions of `liza up --tmux` have one", f"liza logs {agent_of(run)} -f"
    )


def follow_stream(crew: Crew, session: StreamAttachment) -> Iterator[str]:
    """Yield the session's output as text, then what is new: of this run, and of the agent's next runs."""
    shown: dict[str, Any] = logs(crew, session.run, FIRST_LINES, followed=True)
    yield from _format_lines(shown["output"])
    for text in follow_output(crew, shown):
        yield from _format_lines(text)


def send_line(crew: Crew, agent: str, line: str) -> str:
    """Send a line as a prompt to the agent's newest run. Return what became of it. Raises RunIsOver, LizaError."""
    by = require_person(crew, planner=False)
    run = find_newest_run(crew, agent)
    answer = submit_prompt(crew, by, PromptRequest(run_id=run, content=line, source=SOURCE))
    return "it waits for the end of the turn" if answer.queued else "sent"


def _format_lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        shown = format_stream_line(line)
        if shown is not None:
            yield shown
