"""The commands that only look."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict as fields_of
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from liza.cli.commands import fast_commands
from liza.cli.declare import JsonOption, create_app, declare_command, parse_duration
from liza.cli.render import printing, render_crew, render_metrics, render_patch, render_task
from liza.cli.render.columns import paint, strip_controls
from liza.cli.render.pager import page_text
from liza.crew.crew import Crew, find_crew
from liza.rules.errors import UsageError
from liza.rules.paths import agent_of, parse_agent_id

app = create_app()

OptionalTaskId = Annotated[str | None, typer.Argument(metavar="[ID]", help="Only this task.")]
FollowOption = Annotated[bool, typer.Option("-f", "--follow", help="Go on as more comes; Ctrl+C ends it.")]


@declare_command(app, "status", "liza status --watch")
def status(
    watch: Annotated[bool, typer.Option("--watch", help="Draw it again whenever something changes.")] = False,
    as_json: JsonOption = False,
) -> None:
    """The goal, the tasks, the agents, and what needs you."""
    if not watch:
        fast_commands.status(as_json)
        return
    from liza.verbs.change_stream import follow_status

    for found in follow_status(find_crew()):
        if as_json:
            printing.print_json_line(found)
        else:
            printing.redraw_screen(render_crew.format_status(found, printing.wants_colours()))


@declare_command(app, "diff", "liza diff invoice-model")
def diff(
    task_id: Annotated[str, typer.Argument(metavar="ID", help="The task.")],
    stat: Annotated[bool, typer.Option("--stat", help="Only which files, and how much.")] = False,
    as_json: JsonOption = False,
) -> None:
    """What a task changes against integration; where somebody is at work on it, what is not committed yet as well."""
    from liza.verbs.diff import diff as verb

    crew = find_crew()
    found = verb(crew, task_id, stat)
    if as_json:
        printing.print_json(found)
    else:
        page_text(render_patch.format_diff(found, printing.wants_colours()), crew.git)


@declare_command(app, "history", "liza history invoice-model -p")
def history(
    task_id: OptionalTaskId = None,
    follow: FollowOption = False,
    patch: Annotated[bool, typer.Option("-p", "--patch", help="With what changed on the board.")] = False,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="At most so many.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """What happened, newest first: one line a revision of the board. The same: git log -p refs/liza/blackboard."""
    from liza.verbs import history as verbs

    crew = find_crew()
    found = verbs.history(crew, task_id, limit, patch)
    if as_json and not follow:
        printing.print_json({"revisions": found})
    elif not follow:
        page_text(render_patch.format_history(found, printing.wants_colours()), crew.git)
    else:
        for entry in verbs.follow_history(crew, task_id, found):
            if as_json:
                printing.print_json_line(entry)
            else:
                printing.print_now(render_patch.format_history([entry], printing.wants_colours()))


@declare_command(app, "logs", "liza logs coder-1 -f\nliza logs -f -t")
def logs(
    agent: Annotated[
        str | None,
        typer.Argument(metavar="[AGENT]", help="An agent, one of its runs (coder-1.7), or a task; default: all."),
    ] = None,
    follow: FollowOption = False,
    lines: Annotated[
        int, typer.Option("-n", "--lines", min=1, help="At most so many lines of each, from the end.")
    ] = 200,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="10m", help="Only what was printed since then: a number and s, m, h or d."),
    ] = None,
    times: Annotated[bool, typer.Option("-t", "--times", help="With the time of day of each line.")] = False,
    as_json: JsonOption = False,
) -> None:
    """What the program of an agent printed in its newest run; without a name that of every agent, behind its name."""
    from liza.verbs import logs as verbs

    crew = find_crew()
    agent = None if agent is None else verbs.resolve_run(crew, agent)
    if agent is None or since is not None or times:
        seconds = None if since is None else parse_duration(since, "liza logs --since 15m")
        _print_lines(crew, agent, lines, seconds, follow, _LineFormat(agent is None, times, as_json))
        return
    found = verbs.logs(crew, agent, lines, followed=follow)
    if as_json and not follow:
        printing.print_json(found)
        return
    printing.print_now(strip_controls(found["output"]))
    if follow:
        for more in verbs.follow_output(crew, found):
            printing.print_now(strip_controls(more))


@dataclass(frozen=True)
class _LineFormat:
    """How lines are shown: behind the agent's name, behind the time, as JSON."""

    with_names: bool
    with_times: bool
    as_json: bool

    def print_line(self, one: Any, width: int) -> None:
        if self.as_json:
            printing.print_json_line(fields_of(one))
            return
        clock = (printing.time_of_day(one.time) if one.time else " " * 8) + "  " if self.with_times else ""
        name = (
            paint(f"{one.agent:<{width}} | ", render_crew.agent_colour(one.agent), printing.wants_colours())
            if self.with_names
            else ""
        )
        printing.print_now(f"{clock}{name}{strip_controls(one.text)}\n")


def _print_lines(crew: Crew, agent: str | None, most: int, seconds: int | None, follow: bool, how: _LineFormat) -> None:
    from liza.verbs import all_logs as verbs
    from liza.verbs import logs as one

    names = (
        verbs.sorted_agents(crew)
        if agent is None
        else [agent if "." in agent else agent_of(one.find_newest_run(crew, parse_agent_id(agent)))]
    )
    since = crew.clock.now() - timedelta(seconds=seconds) if seconds is not None else None
    found, places = verbs.read_recent_lines(crew, names, most, since)
    if how.as_json and not follow:
        printing.print_json({"lines": [fields_of(line) for line in found]})
        return
    width = max(map(len, names), default=0)
    for line in found:
        how.print_line(line, width)
    if follow:
        for line in verbs.follow_lines(crew, names, places):
            how.print_line(line, width)
    elif not found:
        printing.print_notice("nothing was printed" + ("" if since is None else " since then"))


@declare_command(app, "attach", "liza attach coder-1")
def attach(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="An agent, or one of its runs, such as coder-1.7.")],
    read_only: Annotated[
        bool, typer.Option("-r", "--read-only", help="Only look: what is typed goes nowhere.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Sit down at the terminal of an agent's program: see what it shows, and type. C-b d leaves, and it goes on.

    With --json only the command is said that would do so.
    """
    from liza.verbs.attach import attach as verb

    seat = verb(find_crew(), agent, read_only=read_only)
    if as_json:
        printing.print_json({"agent": seat.agent, "run": seat.run, "command": seat.command})
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("this is not said from a terminal", f"liza logs {seat.agent} -f")
    # From inside a tmux of the person's own: theirs is another server, and tmux refuses to be started in a tmux.
    environ = {name: value for name, value in os.environ.items() if name != "TMUX"}
    os.execvpe(seat.command[0], seat.command, environ)


@declare_command(app, "agents", "liza agents coder-1")
def agents(
    agent: Annotated[str | None, typer.Argument(metavar="[ID]", help="Only this agent, with its work.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Who is there, what each does, and why an idle one is idle."""
    from liza.verbs import agents as verbs

    crew = find_crew()
    if agent is not None:
        one = verbs.show_agent(crew, agent)
        printing.print_json(one) if as_json else printing.print_wrapped(
            render_task.format_agent(one, printing.wants_colours())
        )
        return
    found = verbs.list_agents(crew)
    printing.print_json({"agents": found}) if as_json else printing.print_wrapped(
        render_crew.format_agents(found, printing.wants_colours())
    )


@declare_command(app, "watch", "liza watch")
def watch(as_json: JsonOption = False) -> None:
    """Say each thing that needs a person once, until it is settled. Ctrl+C ends it."""
    from liza.verbs.watch import watch as verb

    for alarm in verb(find_crew()):
        if as_json:
            printing.print_json_line(alarm)
        else:
            printing.print_now(render_crew.format_alarm(alarm, printing.wants_colours()))


@declare_command(app, "metrics", "liza metrics")
def metrics(as_json: JsonOption = False) -> None:
    """Tasks, tries, verdicts and messages of the sprint; time, tokens and money by task, agent, program and outcome."""
    from liza.verbs.metrics import metrics as verb

    found = verb(find_crew())
    if as_json:
        printing.print_json(found)
    else:
        printing.print_wrapped(render_metrics.format_metrics(found))


@declare_command(app, "validate", "liza validate .liza/state.yaml")
def validate(
    path: Annotated[Path | None, typer.Argument(metavar="[PATH]", help="A board, or a directory with one.")] = None,
    as_json: JsonOption = False,
) -> int:
    """Check a board against every rule; each violation and exit 1 when it breaks one, exit 4 when it cannot be read.

    Needs no crew with PATH.
    """
    from liza.verbs.validate import validate as verb

    found = verb(path)
    if as_json:
        printing.print_json(found)
    else:
        printing.print_wrapped(render_crew.format_validation(found))
    return 0 if found["valid"] else 1 if found["readable"] else 4
