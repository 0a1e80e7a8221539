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

from liza.cli.commands import quick
from liza.cli.declare import Json, duration, new, say
from liza.cli.render import render_crew, render_metrics, render_patch, render_task, tell
from liza.cli.render.columns import harmless, paint
from liza.cli.render.pager import paged
from liza.crew.crew import Crew, find_crew
from liza.rules.errors import Usage
from liza.rules.paths import agent_id, agent_of

app = new()

MaybeId = Annotated[str | None, typer.Argument(metavar="[ID]", help="Only this task.")]
Follow = Annotated[bool, typer.Option("-f", "--follow", help="Go on as more comes; Ctrl+C ends it.")]


@say(app, "status", "liza status --watch")
def status(
    watch: Annotated[bool, typer.Option("--watch", help="Draw it again whenever something changes.")] = False,
    as_json: Json = False,
) -> None:
    """The goal, the tasks, the agents, and what needs you."""
    if not watch:
        quick.status(as_json)
        return
    from liza.verbs.following import follow

    for found in follow(find_crew()):
        if as_json:
            tell.line(found)
        else:
            tell.screen(render_crew.status(found, tell.colours()))


@say(app, "diff", "liza diff invoice-model")
def diff(
    task_id: Annotated[str, typer.Argument(metavar="ID", help="The task.")],
    stat: Annotated[bool, typer.Option("--stat", help="Only which files, and how much.")] = False,
    as_json: Json = False,
) -> None:
    """What a task changes against integration; where somebody is at work on it, what is not committed yet as well."""
    from liza.verbs.diff import diff as verb

    crew = find_crew()
    found = verb(crew, task_id, stat)
    if as_json:
        tell.json(found)
    else:
        paged(render_patch.diff(found, tell.colours()), crew.git)


@say(app, "history", "liza history invoice-model -p")
def history(
    task_id: MaybeId = None,
    follow: Follow = False,
    patch: Annotated[bool, typer.Option("-p", "--patch", help="With what changed on the board.")] = False,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="At most so many.")] = 50,
    as_json: Json = False,
) -> None:
    """What happened, newest first: one line a revision of the board. The same: git log -p refs/liza/blackboard."""
    from liza.verbs import history as verbs

    crew = find_crew()
    found = verbs.history(crew, task_id, limit, patch)
    if as_json and not follow:
        tell.json({"revisions": found})
    elif not follow:
        paged(render_patch.history(found, tell.colours()), crew.git)
    else:
        for entry in verbs.follow(crew, task_id, found):
            if as_json:
                tell.line(entry)
            else:
                tell.live(render_patch.history([entry], tell.colours()))


@say(app, "logs", "liza logs coder-1 -f\nliza logs -f -t")
def logs(
    agent: Annotated[
        str | None,
        typer.Argument(metavar="[AGENT]", help="An agent, one of its runs (coder-1.7), or a task; default: all."),
    ] = None,
    follow: Follow = False,
    lines: Annotated[
        int, typer.Option("-n", "--lines", min=1, help="At most so many lines of each, from the end.")
    ] = 200,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="10m", help="Only what was printed since then: a number and s, m, h or d."),
    ] = None,
    times: Annotated[bool, typer.Option("-t", "--times", help="With the time of day of each line.")] = False,
    as_json: Json = False,
) -> None:
    """What the program of an agent printed in its newest run; without a name that of every agent, behind its name."""
    from liza.verbs import logs as verbs

    crew = find_crew()
    agent = None if agent is None else verbs.of_task(crew, agent)
    if agent is None or since is not None or times:
        seconds = None if since is None else duration(since, "liza logs --since 15m")
        _lines(crew, agent, lines, seconds, follow, _Shown(agent is None, times, as_json))
        return
    found = verbs.logs(crew, agent, lines, followed=follow)
    if as_json and not follow:
        tell.json(found)
        return
    tell.live(harmless(found["output"]))
    if follow:
        for more in verbs.follow(crew, found):
            tell.live(harmless(more))


@dataclass(frozen=True)
class _Shown:
    """How lines are shown: behind the agent's name, behind the time, as JSON."""

    named: bool
    times: bool
    as_json: bool

    def line(self, one: Any, width: int) -> None:
        if self.as_json:
            tell.line(fields_of(one))
            return
        clock = (tell.clock(one.time) if one.time else " " * 8) + "  " if self.times else ""
        name = paint(f"{one.agent:<{width}} | ", render_crew.colour_of(one.agent), tell.colours()) if self.named else ""
        tell.live(f"{clock}{name}{harmless(one.text)}\n")


def _lines(crew: Crew, agent: str | None, most: int, seconds: int | None, follow: bool, how: _Shown) -> None:
    from liza.verbs import all_logs as verbs
    from liza.verbs import logs as one

    names = (
        verbs.agents(crew)
        if agent is None
        else [agent if "." in agent else agent_of(one.newest_run(crew, agent_id(agent)))]
    )
    since = crew.clock.now() - timedelta(seconds=seconds) if seconds is not None else None
    found, places = verbs.recent(crew, names, most, since)
    if how.as_json and not follow:
        tell.json({"lines": [fields_of(line) for line in found]})
        return
    width = max(map(len, names), default=0)
    for line in found:
        how.line(line, width)
    if follow:
        for line in verbs.follow(crew, names, places):
            how.line(line, width)
    elif not found:
        tell.notice("nothing was printed" + ("" if since is None else " since then"))


@say(app, "attach", "liza attach coder-1")
def attach(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="An agent, or one of its runs, such as coder-1.7.")],
    read_only: Annotated[
        bool, typer.Option("-r", "--read-only", help="Only look: what is typed goes nowhere.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Sit down at the terminal of an agent's program: see what it shows, and type. C-b d leaves, and it goes on.

    With --json only the command is said that would do so.
    """
    from liza.verbs.attach import attach as verb

    seat = verb(find_crew(), agent, read_only=read_only)
    if as_json:
        tell.json({"agent": seat.agent, "run": seat.run, "command": seat.command})
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Usage("this is not said from a terminal", f"liza logs {seat.agent} -f")
    # From inside a tmux of the person's own: theirs is another server, and tmux refuses to be started in a tmux.
    environ = {name: value for name, value in os.environ.items() if name != "TMUX"}
    os.execvpe(seat.command[0], seat.command, environ)


@say(app, "agents", "liza agents coder-1")
def agents(
    agent: Annotated[str | None, typer.Argument(metavar="[ID]", help="Only this agent, with its work.")] = None,
    as_json: Json = False,
) -> None:
    """Who is there, what each does, and why an idle one is idle."""
    from liza.verbs import agents as verbs

    crew = find_crew()
    if agent is not None:
        one = verbs.agent(crew, agent)
        tell.json(one) if as_json else tell.text(render_task.agent(one, tell.colours()))
        return
    found = verbs.agents(crew)
    tell.json({"agents": found}) if as_json else tell.text(render_crew.agents(found, tell.colours()))


@say(app, "watch", "liza watch")
def watch(as_json: Json = False) -> None:
    """Say each thing that needs a person once, until it is settled. Ctrl+C ends it."""
    from liza.verbs.watch import watch as verb

    for alarm in verb(find_crew()):
        if as_json:
            tell.line(alarm)
        else:
            tell.live(render_crew.alarm_line(alarm, tell.colours()))


@say(app, "metrics", "liza metrics")
def metrics(as_json: Json = False) -> None:
    """Tasks, tries, verdicts and messages of the sprint; time, tokens and money by task, agent, program and outcome."""
    from liza.verbs.metrics import metrics as verb

    found = verb(find_crew())
    if as_json:
        tell.json(found)
    else:
        tell.text(render_metrics.metrics(found))


@say(app, "validate", "liza validate .liza/state.yaml")
def validate(
    path: Annotated[Path | None, typer.Argument(metavar="[PATH]", help="A board, or a directory with one.")] = None,
    as_json: Json = False,
) -> int:
    """Check a board against every rule; each violation and exit 1 when it breaks one, exit 4 when it cannot be read.

    Needs no crew with PATH.
    """
    from liza.verbs.validate import validate as verb

    found = verb(path)
    if as_json:
        tell.json(found)
    else:
        tell.text(render_crew.validation(found))
    return 0 if found["valid"] else 1 if found["readable"] else 4
