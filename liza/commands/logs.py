"""``liza logs``: show the output of an agent's newest run."""

from __future__ import annotations

from datetime import timedelta
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
from liza.cli.render import printing, render_crew
from liza.cli.render.columns import paint, strip_controls
from liza.cli.render.reader_watch import exit_with_reader
from liza.crew.crew import Crew, find_crew
from liza.rules.errors import UsageError
from liza.rules.paths import agent_of, parse_agent_id
from liza.rules.value_classes import Value
from liza.rules.value_classes import asdict as fields_of
from liza.verbs import all_logs
from liza.verbs import logs as run_logs

app = create_app()
FollowOption = Annotated[bool, typer.Option("-f", "--follow", help="Continue with new output; Ctrl+C ends it.")]


@declare_command(
    app,
    "logs",
    "liza logs coder-1 -f\nliza logs -f -t",
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
    times: Annotated[bool, typer.Option("-t", "--times", help="Include the time of day of each line.")] = False,
    deliveries: Annotated[
        bool,
        typer.Option("--deliveries", help="How messages to AGENT were delivered: each try, its channel and result."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the output of an agent's newest run. Without AGENT, show all agents; each line has the agent's name."""
    crew = find_crew()
    agent = None if agent is None else run_logs.resolve_run(crew, agent)
    if deliveries:
        _print_deliveries(crew, agent, lines, as_json)
        return
    if agent is None or since is not None or times:
        seconds = None if since is None else parse_duration(since, "liza logs --since 15m")
        _print_lines(crew, agent, lines, seconds, follow, _LineFormat(agent is None, times, as_json))
        return
    log = run_logs.logs(crew, agent, lines, followed=follow)
    if as_json and not follow:
        printing.print_json(log)
        return
    printing.print_now(strip_controls(log["output"]))
    for rule, denied in log["denials"].items():
        printing.print_notice(f"denied {denied['count']}× by the guard rule {rule}; the last: {denied['last']}")
    if log["note"]:
        printing.print_notice(log["note"])
    if follow:
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


def _print_lines(
    crew: Crew, agent: str | None, limit: int, seconds: int | None, follow: bool, line_format: _LineFormat
) -> None:
    names = (
        all_logs.sorted_agents(crew)
        if agent is None
        else [agent if "." in agent else agent_of(run_logs.find_newest_run(crew, parse_agent_id(agent)))]
    )
    since = crew.clock.now() - timedelta(seconds=seconds) if seconds is not None else None
    recent, positions = all_logs.read_recent_lines(crew, names, limit, since)
    if line_format.as_json and not follow:
        printing.print_json({"lines": [fields_of(line) for line in recent]})
        return
    width = max(map(len, names), default=0)
    for line in recent:
        line_format.print_line(line, width)
    if follow:
        exit_with_reader()
        for line in all_logs.follow_lines(crew, names, positions):
            line_format.print_line(line, width)
    elif not recent:
        printing.print_notice("nothing was printed" + ("" if since is None else " since then"))
