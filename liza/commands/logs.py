"""``liza logs``: show what agents did in their sessions."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from liza.cli.declare import (
    Heading,
    JsonOption,
    Position,
    Process,
    create_app,
    declare_command,
    parse_duration,
)
from liza.cli.render import printing, render_crew, render_session
from liza.cli.render.columns import paint, strip_controls
from liza.cli.render.reader_watch import exit_with_reader
from liza.crew.crew import Crew, find_crew
from liza.rules.errors import UsageError
from liza.rules.paths import agent_of, parse_agent_id
from liza.rules.value_classes import Value
from liza.rules.value_classes import asdict as fields_of
from liza.verbs import all_logs, session_log
from liza.verbs import logs as run_logs

app = create_app()
FollowOption = Annotated[bool, typer.Option("-f", "--follow", help="Continue with new output; Ctrl+C ends it.")]


@declare_command(
    app,
    "logs",
    "liza logs coder-1 -f\nliza logs invoice-mail\nliza logs coder-1 --raw",
    process=Process.DIRECT_AT_TERMINAL,
    position=Position(Heading.LOOK, 7),
)
def logs(
    agent: Annotated[
        str | None,
        typer.Argument(metavar="[AGENT]", help="An agent, one of its runs (coder-1.7), or a task; default: all."),
    ] = None,
    follow: FollowOption = False,
    lines: Annotated[
        int, typer.Option("-n", "--lines", min=1, help="Maximum number of lines per agent, from the end.")
    ] = 200,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="10m", help="Only output that is not older: a number and s, m, h or d."),
    ] = None,
    times: Annotated[bool, typer.Option("-t", "--times", help="Include the time of day of each line of text.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="The output of the program as it is.")] = False,
    subagents: Annotated[bool, typer.Option("--subagents", help="Show what sub-agents did, too.")] = False,
    deliveries: Annotated[
        bool,
        typer.Option("--deliveries", help="How messages to AGENT were delivered: each try, its channel and result."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what an agent did in its newest session: what the model said, each tool with its result, tokens.

    Of a task, all its sessions are shown. Without AGENT, the newest sessions of all agents; each row has the agent's
    name. Of a program without a known format, its output is shown.
    """
    crew = find_crew()
    window = _Window(lines, None if since is None else parse_duration(since, "liza logs --since 15m"), follow)
    if deliveries:
        _print_deliveries(crew, None if agent is None else run_logs.resolve_run(crew, agent), lines, as_json)
    elif raw or as_json:
        _print_raw(crew, agent, window, _LineFormat(agent is None, times, as_json))
    else:
        _print_sessions(crew, agent, window, with_subagents=subagents, with_times=times)


class _Window(Value):
    """Which lines of the output are shown: the last ``lines``, not older than ``seconds``, and later ones."""

    lines: int
    seconds: int | None
    is_followed: bool

    def begin(self, crew: Crew) -> datetime | None:
        """The time of the oldest line; None if there is no limit."""
        return None if self.seconds is None else crew.clock.now() - timedelta(seconds=self.seconds)


def _print_sessions(crew: Crew, agent: str | None, window: _Window, *, with_subagents: bool, with_times: bool) -> None:
    names = _find_sessions(crew, agent)
    style = render_session.SessionStyle(
        printing.text_width(),
        printing.wants_colours(),
        name_width=max(map(len, names), default=0) if agent is None else 0,
        with_subagents=with_subagents,
        with_times=with_times,
    )
    if agent is None:
        recent, positions = session_log.read_recent(crew, names, window.lines, window.begin(crew))
        for row in render_session.format_followed(recent, style):
            printing.print_now(f"{row}\n")
    else:
        positions = {}
        for name in names:
            recent, positions = session_log.read_recent(crew, [name], window.lines, window.begin(crew))
            if len(names) > 1:
                printing.print_now(f"── {name} ──")
            for row in render_session.format_session(recent, style):
                printing.print_now(f"{row}\n")
        _print_notes(run_logs.logs(crew, names[-1], 1))
    if window.is_followed:
        exit_with_reader()
        last = None if agent is None else names[-1]
        # Of an agent, or the agent of a task, also the next runs are followed.
        followed = names if last is None else [last if agent == last else agent_of(last)]
        for row in render_session.format_followed(session_log.follow(crew, followed, positions), style, last):
            printing.print_now(f"{row}\n")


def _find_sessions(crew: Crew, agent: str | None) -> list[str]:
    """Return the agents whose newest sessions are shown, or the runs. Raises UnknownId, Refused."""
    if agent is None:
        return all_logs.sorted_agents(crew)
    run = run_logs.resolve_run(crew, agent)
    if "." in agent:
        return [run]
    if run != agent:
        return list(session_log.find_runs_of_task(crew, agent)) or [run]
    return [run_logs.find_newest_run(crew, parse_agent_id(agent))]


def _print_notes(log: dict[str, Any]) -> None:
    for rule, denied in log["denials"].items():
        printing.print_notice(f"denied {denied['count']}× by the guard rule {rule}; the last: {denied['last']}")
    if log["note"]:
        printing.print_notice(log["note"])


def _print_raw(crew: Crew, agent: str | None, window: _Window, line_format: _LineFormat) -> None:
    agent = None if agent is None else run_logs.resolve_run(crew, agent)
    if agent is None or window.seconds is not None or line_format.with_times:
        _print_lines(crew, agent, window, line_format)
        return
    log = run_logs.logs(crew, agent, window.lines, followed=window.is_followed)
    if line_format.as_json and not window.is_followed:
        printing.print_json(log)
        return
    printing.print_now(strip_controls(log["output"]))
    _print_notes(log)
    if window.is_followed:
        exit_with_reader()
        for text in run_logs.follow_output(crew, log):
            printing.print_now(strip_controls(text))


def _print_deliveries(crew: Crew, agent: str | None, lines: int, as_json: bool) -> None:
    if agent is None:
        raise UsageError("--deliveries needs an agent", "liza logs coder-1 --deliveries")
    entries = run_logs.list_deliveries(crew, agent, lines)
    if as_json:
        printing.print_json({"agent": agent, "deliveries": entries})
        return
    if not entries:
        printing.print_notice(f"no try to deliver a message to {agent} is on record")
    for entry in entries:
        detail = f"  {strip_controls(entry.detail)}" if entry.detail else ""
        printing.print_now(
            f"{printing.time_of_day(entry.time)}  {entry.message}  try {entry.attempt}  {entry.event:<9}  "
            f"{entry.channel:<8}{detail}\n"
        )


class _LineFormat(Value):
    """How lines are printed: with the agent's name, with the time, as JSON."""

    with_names: bool
    with_times: bool
    as_json: bool

    def print_line(self, line: Any, width: int) -> None:
        if self.as_json:
            printing.print_json_line(fields_of(line))
            return
        time_text = (printing.time_of_day(line.time) if line.time else " " * 8) + "  " if self.with_times else ""
        prefix = (
            paint(f"{line.agent:<{width}} | ", render_crew.agent_colour(line.agent), printing.wants_colours())
            if self.with_names
            else ""
        )
        printing.print_now(f"{time_text}{prefix}{strip_controls(line.text)}\n")


def _print_lines(crew: Crew, agent: str | None, window: _Window, line_format: _LineFormat) -> None:
    names = (
        all_logs.sorted_agents(crew)
        if agent is None
        else [agent if "." in agent else agent_of(run_logs.find_newest_run(crew, parse_agent_id(agent)))]
    )
    since = window.begin(crew)
    recent, positions = all_logs.read_recent_lines(crew, names, window.lines, since)
    if line_format.as_json and not window.is_followed:
        printing.print_json({"lines": [fields_of(line) for line in recent]})
        return
    width = max(map(len, names), default=0)
    for line in recent:
        line_format.print_line(line, width)
    if window.is_followed:
        exit_with_reader()
        for line in all_logs.follow_lines(crew, names, positions):
            line_format.print_line(line, width)
    elif not recent:
        printing.print_notice("nothing was printed" + ("" if since is None else " since then"))
