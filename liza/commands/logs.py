"""``liza logs``: show what agents did in their sessions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Annotated

import msgspec
import typer

from liza.commands._declare import Heading, JsonOption, Position, Process, create_app, declare_command, parse_duration
from liza.crew.crew import Crew, find_crew
from liza.model.errors import Refused, UsageError
from liza.model.paths import agent_of, parse_agent_id
from liza.model.value_classes import Value
from liza.printing import printing, render_crew, render_session
from liza.printing.columns import paint, strip_controls
from liza.printing.pager import exit_with_reader, page_text
from liza.programs.rules.session_events import LoggedEvent, describe_unknown
from liza.text.redaction import redact_values
from liza.view import all_logs, session_log
from liza.view import logs as run_logs
from liza.view.all_logs import OutputLine

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
    name. Of a program without a known format, its output is shown. --json prints the session in ATIF, the Agent
    Trajectory Interchange Format; without AGENT, or of a task, `trajectories` has one for each session.
    """
    if as_json and (raw or follow):
        raise UsageError("--json excludes --raw and -f", "liza logs --help")
    crew = find_crew()
    if deliveries:
        _print_deliveries(crew, None if agent is None else run_logs.resolve_run(crew, agent), lines, as_json)
        return
    window = _Window(lines, None if since is None else parse_duration(since, "liza logs --since 15m"), follow)
    names = _find_sessions(crew, agent)
    if raw:
        _print_raw(crew, names, window, _LineStyle(max(map(len, names), default=1) if agent is None else 0, times))
    elif as_json:
        is_single = agent is not None and agent in (names[0], agent_of(names[0]))
        _print_trajectories(crew, names, window, is_single=is_single)
    else:
        style = render_session.SessionStyle(
            printing.text_width(),
            printing.wants_colours(),
            name_width=max(map(len, names), default=1) if agent is None else 0,
            with_subagents=subagents,
            with_times=times,
        )
        _print_sessions(crew, agent, names, window, style)


class _Window(Value):
    """Which lines of the output are shown: the last ``lines``, not older than ``seconds``, and later ones."""

    lines: int
    seconds: int | None
    is_followed: bool

    def begin(self, crew: Crew) -> datetime | None:
        """The time of the oldest line; None if there is no limit."""
        return None if self.seconds is None else crew.clock.now() - timedelta(seconds=self.seconds)


def _find_sessions(crew: Crew, agent: str | None) -> list[str]:
    """Return the agents whose newest sessions are shown, or the runs. Raises UnknownId, Refused."""
    if agent is None:
        return all_logs.sorted_agents(crew.board)
    run = run_logs.resolve_run(crew, agent)
    if "." in agent:
        return [run]
    if run != agent:
        return list(session_log.find_runs_of_task(crew, agent)) or [run]
    return [run_logs.find_newest_run(crew, parse_agent_id(agent))]


def _print_sessions(
    crew: Crew, agent: str | None, names: list[str], window: _Window, style: render_session.SessionStyle
) -> None:
    events, positions = session_log.read_recent(crew, names, window.lines, window.begin(crew))
    rows = (
        _format_sessions(events, names, style) if agent is not None else render_session.format_followed(events, style)
    )
    text = "".join(f"{row}\n" for row in rows)
    printing.print_now(text) if window.is_followed else page_text(text, crew.git)
    _print_notes(crew, events, names if agent is not None else [], window)
    if window.is_followed:
        exit_with_reader()
        last = None if agent is None else names[-1]
        for row in render_session.format_followed(
            session_log.follow(crew, _followed(agent, names), positions), style, last
        ):
            printing.print_now(f"{row}\n")


def _format_sessions(events: list[LoggedEvent], names: list[str], style: render_session.SessionStyle) -> Iterator[str]:
    """Yield the rows of each session, of several ones below a row with the name of the run."""
    for name in names:
        if len(names) > 1:
            yield f"── {name} ──"
        yield from render_session.format_session((entry for entry in events if entry.run == name), style)


def _followed(agent: str | None, names: list[str]) -> list[str] | None:
    """Return what is followed: of an agent, or of the agent of a task, also the next runs; None: all agents."""
    return None if agent is None else [names[-1] if agent == names[-1] else agent_of(names[-1])]


def _print_notes(crew: Crew, events: Iterable[LoggedEvent], runs: list[str], window: _Window) -> None:
    """Print what is not in the output of the last run: denials, why there is nothing, a format that is not read."""
    for run in runs[-1:]:
        notes = run_logs.read_notes(crew, run)
        for rule, (count, last) in notes.denials.items():
            printing.print_notice(f"denied {count}× by the guard rule {rule}; the last: {last}")
        if notes.silence:
            printing.print_notice(notes.silence)
    unread = describe_unknown(events)
    if unread:
        printing.print_notice(f"{unread}; next: liza logs {runs[-1] if runs else 'AGENT'} --raw")
    if not runs and not any(True for _ in events) and not window.is_followed:
        printing.print_notice("nothing was printed" + ("" if window.seconds is None else " since then"))


def _print_trajectories(crew: Crew, names: list[str], window: _Window, *, is_single: bool) -> None:
    read = session_log.read_trajectories(crew, names, window.lines, window.begin(crew))
    trajectories = [redact_values(msgspec.to_builtins(trajectory)) for trajectory in read]
    if not is_single:
        printing.print_json({"trajectories": trajectories})
    elif trajectories:
        printing.print_json(trajectories[0])
    else:
        raise Refused(run_logs.read_notes(crew, names[0]).silence or "nothing was printed since then", "liza logs")


class _LineStyle(Value):
    """How a line of an output is printed: with the agent's name, in ``name_width`` cells if not 0, and the time."""

    name_width: int
    with_times: bool

    def format(self, line: OutputLine) -> str:
        """Return the line."""
        time_text = (printing.time_of_day(line.time) if line.time else " " * 8) + "  " if self.with_times else ""
        name = f"{line.agent:<{self.name_width}} | " if self.name_width else ""
        painted = paint(name, render_crew.agent_colour(line.agent), printing.wants_colours()) if name else ""
        return f"{time_text}{painted}{strip_controls(line.text)}\n"


def _print_raw(crew: Crew, names: list[str], window: _Window, style: _LineStyle) -> None:
    recent, positions = all_logs.read_recent_lines(crew, names, window.lines, window.begin(crew))
    for line in recent:
        printing.print_now(style.format(line))
    _print_notes(crew, (), [] if style.name_width else names, window)
    if not window.is_followed:
        return
    exit_with_reader()
    run = None if style.name_width else names[-1]
    for line in all_logs.follow_lines(crew, _followed(None if run is None else agent_of(run), names), positions):
        if run is not None and line.run != run:
            run = line.run
            printing.print_now(f"\n── {run} ──\n")
        printing.print_now(style.format(line))


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
