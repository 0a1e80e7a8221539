"""The commands that only look."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from liza.cli import quick, render, render_metrics, render_patch, render_task, tell
from liza.cli.columns import harmless
from liza.cli.words import Json, new, say
from liza.rules.errors import Usage
from liza.verbs.crew import find_crew

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
    from liza.verbs.status import follow

    for found in follow(find_crew()):
        if as_json:
            tell.line(found)
        else:
            tell.screen(render.status(found, tell.colours()))


@say(app, "diff", "liza diff invoice-model")
def diff(
    task_id: Annotated[str, typer.Argument(metavar="ID", help="The task.")],
    stat: Annotated[bool, typer.Option("--stat", help="Only which files, and how much.")] = False,
    as_json: Json = False,
) -> None:
    """What a task changes against integration; where somebody is at work on it, what is not committed yet as well."""
    from liza.verbs.diff import diff as verb

    found = verb(find_crew(), task_id, stat)
    if as_json:
        tell.json(found)
    else:
        tell.out(render_patch.diff(found, tell.colours()))


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
        tell.out(render_patch.history(found, tell.colours()))
    else:
        for entry in verbs.follow(crew, task_id, found):
            if as_json:
                tell.line(entry)
            else:
                tell.live(render_patch.history([entry], tell.colours()))


@say(app, "logs", "liza logs coder-1 -f")
def logs(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="An agent, or one of its runs, such as coder-1.7.")],
    follow: Follow = False,
    lines: Annotated[int, typer.Option("-n", "--lines", min=1, help="At most so many lines, from the end.")] = 200,
    as_json: Json = False,
) -> None:
    """What the program of an agent printed in its newest run."""
    from liza.verbs import logs as verbs

    crew = find_crew()
    found = verbs.logs(crew, agent, lines, followed=follow)
    if as_json and not follow:
        tell.json(found)
        return
    tell.live(harmless(found["output"]))
    if follow:
        for more in verbs.follow(crew, found):
            tell.live(harmless(more))


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
    tell.json({"agents": found}) if as_json else tell.text(render.agents(found, tell.colours()))


@say(app, "watch", "liza watch")
def watch(as_json: Json = False) -> None:
    """Say each thing that needs a person once, until it is settled. Ctrl+C ends it."""
    from liza.verbs.watch import watch as verb

    for alarm in verb(find_crew()):
        if as_json:
            tell.line(alarm)
        else:
            tell.live(render.alarm_line(alarm, tell.colours()))


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
        tell.text(render.validation(found))
    return 0 if found["valid"] else 1 if found["readable"] else 4
