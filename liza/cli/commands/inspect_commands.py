"""Commands that only read."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from liza.cli.declare import JsonOption, Process, create_app, declare_command, parse_duration, read_text, split_names
from liza.cli.render import printing, render_crew, render_metrics, render_patch, render_task
from liza.cli.render.columns import paint, strip_controls
from liza.cli.render.pager import page_text
from liza.crew.crew import Crew, find_crew
from liza.rules.errors import LizaError, UsageError
from liza.rules.paths import agent_of, parse_agent_id
from liza.rules.value_classes import Value
from liza.rules.value_classes import asdict as fields_of
from liza.verbs.status import status as find_status

if TYPE_CHECKING:
    from liza.verbs.attach import StreamAttachment

app = create_app()

OptionalTaskId = Annotated[str | None, typer.Argument(metavar="[ID]", help="Only this task.")]
FollowOption = Annotated[bool, typer.Option("-f", "--follow", help="Continue with new output; Ctrl+C ends it.")]


@declare_command(app, "status", "liza status --watch")
def status(
    watch: Annotated[bool, typer.Option("--watch", help="Redraw at each change.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the goal, the tasks, the agents, and what waits for you."""
    if not watch:
        summary = find_status(find_crew())
        if as_json:
            printing.print_json(summary)
        else:
            printing.print_wrapped(render_crew.format_status(summary, printing.wants_colours()))
        return
    from liza.verbs.change_stream import follow_status

    _exit_with_reader()
    for summary in follow_status(find_crew()):
        if as_json:
            printing.print_json_line(summary)
        else:
            printing.redraw_screen(render_crew.format_status(summary, printing.wants_colours()))


@declare_command(app, "diff", "liza diff invoice-model", process=Process.DIRECT_AT_TERMINAL)
def diff(
    task_id: Annotated[str, typer.Argument(metavar="ID", help="The task.")],
    stat: Annotated[bool, typer.Option("--stat", help="Show only file names and numbers of changed lines.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a task changes compared with integration, including uncommitted changes of a running session."""
    from liza.verbs.diff import diff as verb

    crew = find_crew()
    patch = verb(crew, task_id, stat)
    if as_json:
        printing.print_json(patch)
    else:
        page_text(render_patch.format_diff(patch, printing.wants_colours()), crew.git)


@declare_command(app, "path", 'cd "$(liza path invoice-model)"')
def path(
    task_id: Annotated[str, typer.Argument(metavar="ID", help="The task.")],
    as_json: JsonOption = False,
) -> None:
    """Print the path of a task's worktree. It stays the same until the task is closed."""
    from liza.verbs.path import find_worktree

    directory = find_worktree(find_crew(), task_id)
    if as_json:
        printing.print_json({"task": task_id, "path": directory})
    else:
        # For `cd "$(liza path ID)"`: exactly the bytes of the path.
        sys.stdout.buffer.write(os.fsencode(f"{directory}\n"))


@declare_command(app, "history", "liza history invoice-model -p", process=Process.DIRECT_AT_TERMINAL)
def history(
    task_id: OptionalTaskId = None,
    follow: FollowOption = False,
    patch: Annotated[bool, typer.Option("-p", "--patch", help="Include the changes of the board.")] = False,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="Maximum number of revisions.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """Show what happened, newest first, one line per revision. The same in git: git log -p refs/liza/blackboard."""
    from liza.verbs import history as verbs

    crew = find_crew()
    revisions = verbs.history(crew, task_id, limit, patch)
    if as_json and not follow:
        printing.print_json({"revisions": revisions})
    elif not follow:
        page_text(render_patch.format_history(revisions, printing.wants_colours()), crew.git)
    else:
        _exit_with_reader()
        for entry in verbs.follow_history(crew, task_id, revisions, patch):
            if as_json:
                printing.print_json_line(entry)
            else:
                printing.print_now(render_patch.format_history([entry], printing.wants_colours()))


@declare_command(app, "logs", "liza logs coder-1 -f\nliza logs -f -t", process=Process.DIRECT_AT_TERMINAL)
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
    from liza.verbs import logs as verbs

    crew = find_crew()
    agent = None if agent is None else verbs.resolve_run(crew, agent)
    if deliveries:
        _print_deliveries(crew, agent, lines, as_json)
        return
    if agent is None or since is not None or times:
        seconds = None if since is None else parse_duration(since, "liza logs --since 15m")
        _print_lines(crew, agent, lines, seconds, follow, _LineFormat(agent is None, times, as_json))
        return
    log = verbs.logs(crew, agent, lines, followed=follow)
    if as_json and not follow:
        printing.print_json(log)
        return
    printing.print_now(strip_controls(log["output"]))
    for rule, denied in log["denials"].items():
        printing.print_notice(f"denied {denied['count']}× by the guard rule {rule}; the last: {denied['last']}")
    if log["note"]:
        printing.print_notice(log["note"])
    if follow:
        _exit_with_reader()
        for text in verbs.follow_output(crew, log):
            printing.print_now(strip_controls(text))


def _print_deliveries(crew: Crew, agent: str | None, lines: int, as_json: bool) -> None:
    from liza.verbs import logs as verbs

    if agent is None:
        raise UsageError("--deliveries needs an agent", "liza logs coder-1 --deliveries")
    entries = verbs.list_deliveries(crew, agent, lines)
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
    from liza.verbs import all_logs as verbs
    from liza.verbs import logs as run_logs

    names = (
        verbs.sorted_agents(crew)
        if agent is None
        else [agent if "." in agent else agent_of(run_logs.find_newest_run(crew, parse_agent_id(agent)))]
    )
    since = crew.clock.now() - timedelta(seconds=seconds) if seconds is not None else None
    recent, positions = verbs.read_recent_lines(crew, names, limit, since)
    if line_format.as_json and not follow:
        printing.print_json({"lines": [fields_of(line) for line in recent]})
        return
    width = max(map(len, names), default=0)
    for line in recent:
        line_format.print_line(line, width)
    if follow:
        _exit_with_reader()
        for line in verbs.follow_lines(crew, names, positions):
            line_format.print_line(line, width)
    elif not recent:
        printing.print_notice("nothing was printed" + ("" if since is None else " since then"))


@declare_command(app, "attach", "liza attach coder-1", process=Process.DIRECT)
def attach(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="An agent, or one of its runs, such as coder-1.7.")],
    read_only: Annotated[bool, typer.Option("-r", "--read-only", help="Only look: input is ignored.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Attach to the terminal of an agent's program, to see it and to type. C-b d detaches; the program continues.

    A session over ACP is shown as text, and each line that you type is a prompt; Ctrl+C detaches. With --json, only
    print the command that attaches; it is empty over ACP.
    """
    from liza.verbs import attach as verbs

    crew = find_crew()
    session = verbs.attach(crew, agent, read_only=read_only)
    if isinstance(session, verbs.StreamAttachment):
        if as_json:
            printing.print_json({"agent": session.agent, "run": session.run, "command": []})
        else:
            _show_stream(crew, session, read_only=read_only)
        return
    if as_json:
        printing.print_json({"agent": session.agent, "run": session.run, "command": session.command})
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("attach needs a terminal; stdin or stdout is not one", f"liza logs {session.agent} -f")
    # The person may be inside tmux: that is another server, but tmux refuses to start while TMUX is set.
    environ = {name: value for name, value in os.environ.items() if name != "TMUX"}
    os.execvpe(session.command[0], session.command, environ)


def _show_stream(crew: Crew, session: StreamAttachment, *, read_only: bool) -> None:
    """Print a session over ACP until Ctrl+C, and send each line of stdin as a prompt."""
    import threading

    from liza.verbs import attach as verbs

    def send_lines() -> None:
        for line in sys.stdin:
            if line.strip():
                try:
                    printing.print_notice(verbs.send_line(crew, session.agent, line.strip()))
                except (LizaError, OSError) as error:
                    printing.print_notice(f"not sent: {error}")

    if not read_only:
        threading.Thread(target=send_lines, name="prompts", daemon=True).start()
    _exit_with_reader()
    for text in verbs.follow_stream(crew, session):
        printing.print_now(f"{strip_controls(text)}\n")


@declare_command(app, "agents", "liza agents coder-1")
def agents(
    agent: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Only this agent, with its work record and its history.")
    ] = None,
    export: Annotated[bool, typer.Option("--export", help="Print the agent's work record for another crew.")] = False,
    import_: Annotated[
        str | None,
        typer.Option("--import", metavar="FILE", help="Add a record that another crew exported; - is stdin."),
    ] = None,
    origin: Annotated[
        Path | None, typer.Option("--origin", metavar="DIR", help="With --import: verify it against this repository.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the agents, what each does, and why an idle one is idle. With ID: its work record, too."""
    from liza.verbs import agents as verbs

    crew = find_crew()
    if import_ is not None:
        printing.print_result(verbs.import_agent(crew, read_text(import_).encode(), origin), as_json)
        return
    if export:
        if agent is None:
            raise UsageError("--export needs the agent whose record it prints", "liza agents coder-1 --export")
        printing.print_text(verbs.export_agent(crew, agent).decode().rstrip("\n"))
        return
    if agent is not None:
        details = verbs.show_agent(crew, agent)
        printing.print_json(details) if as_json else printing.print_wrapped(
            render_task.format_agent(details, printing.wants_colours())
        )
        return
    rows = verbs.list_agents(crew)
    printing.print_json({"agents": rows}) if as_json else printing.print_wrapped(
        render_crew.format_agents(rows, printing.wants_colours())
    )


@declare_command(
    app, "watch", "liza watch\nliza watch --notify desktop --notify env:SLACK_URL", process=Process.DIRECT_AT_TERMINAL
)
def watch(
    notify: Annotated[
        list[str] | None,
        typer.Option(
            "--notify",
            metavar="TARGET",
            help="Send alarms that need you: to the desktop, env:NAME or file:PATH with a URL of apprise, or a URL.",
        ),
    ] = None,
    exec_: Annotated[
        str | None,
        typer.Option("--exec", metavar="CMD", help="Run a shell command for each such alarm: LIZA_ALARM_MESSAGE, …"),
    ] = None,
    quiet: Annotated[
        str | None,
        typer.Option("--quiet", metavar="HOURS", help="Send nothing at 22:00-07:00 local time, and a digest after it."),
    ] = None,
    try_: Annotated[bool, typer.Option("--try", help="Send a test to each target, and exit.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print each alarm once. An alarm that is resolved and comes back is printed again. Ctrl+C ends the command.

    With --notify or --exec, each alarm that needs you is also sent elsewhere, once until it clears. --quiet and --try
    without a target use config.notify, as `liza up` does. See specs/protocols/notifications.md.
    """
    _exit_with_reader()
    crew = find_crew()
    if notify or exec_ is not None or quiet is not None or try_:
        rows = _notifying_alarms(crew, (notify or [], exec_, quiet), try_)
    else:
        from liza.verbs.watch import watch as verb

        rows = verb(crew)
    for alarm in rows:
        if as_json:
            printing.print_json_line(alarm)
        else:
            printing.print_now(render_crew.format_alarm(alarm, printing.wants_colours()))


def _notifying_alarms(
    crew: Crew, wanted: tuple[list[str], str | None, str | None], is_trial: bool
) -> Iterator[dict[str, Any]]:
    """Yield the alarms and send them. With ``is_trial``: send a test, and yield nothing."""
    from liza.verbs import notify as verbs
    from liza.verbs.watch import watch as watch_alarms

    plan = verbs.open_targets(crew, *wanted)
    if is_trial:
        for line in verbs.send_trial(crew, plan):
            printing.print_now(line)
        return
    with verbs.start_senders(crew, plan) as senders:
        yield from watch_alarms(crew, senders.update)


@declare_command(app, "metrics", "liza metrics\nliza metrics --by model,day --json")
def metrics(
    by: Annotated[
        str | None,
        typer.Option("--by", help="Only usage: by task, agent, program, account, model, tool, outcome or day."),
    ] = None,
    export: Annotated[
        bool, typer.Option("--export", help="Send new sessions to the OpenTelemetry collector (needs liza[otel]).")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show tasks, tries, verdicts and messages of the sprint, and the usage of all sessions in groups.

    Each session counts once: an ended one as recorded, a living one as far as it was measured. By model and by tool,
    only sessions whose runtime reports that are counted. Days are in UTC.
    """
    from liza.verbs.metrics import export_usage, usage_by
    from liza.verbs.metrics import metrics as verb

    if export:
        exported = export_usage(find_crew())
        printing.print_json(exported) if as_json else printing.print_text(render_metrics.format_export(exported))
        return
    groups = split_names(by)
    values = verb(find_crew()) if groups is None else usage_by(find_crew(), groups)
    if as_json:
        printing.print_json(values)
    else:
        text = render_metrics.format_metrics(values) if groups is None else render_metrics.format_usage(values)
        printing.print_wrapped(text)


@declare_command(app, "validate", "liza validate .liza/state.yaml")
def validate(
    path: Annotated[Path | None, typer.Argument(metavar="[PATH]", help="A board, or a directory with one.")] = None,
    as_json: JsonOption = False,
) -> int:
    """Check a board against all rules. Print each violation and exit 1; exit 4 if the board cannot be read.

    With PATH it needs no crew.
    """
    from liza.verbs.validate import validate as verb

    result = verb(path)
    if as_json:
        printing.print_json(result)
    else:
        printing.print_wrapped(render_crew.format_validation(result))
    return 0 if result["valid"] else 1 if result["readable"] else 4


def _exit_with_reader() -> None:
    from liza.cli.render.reader_watch import exit_with_reader

    exit_with_reader()
