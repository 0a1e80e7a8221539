"""``liza watch``: print each alarm once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from liza.cli.declare import (
    Heading,
    JsonOption,
    Position,
    Process,
    create_app,
    declare_command,
)
from liza.cli.render import printing, render_crew
from liza.cli.render.reader_watch import exit_with_reader
from liza.crew.crew import Crew, find_crew
from liza.verbs import watch as verbs

app = create_app()


@declare_command(
    app,
    "watch",
    "liza watch\nliza watch --notify desktop --notify env:SLACK_URL",
    process=Process.DIRECT_AT_TERMINAL,
    position=Position(Heading.LOOK, 10),
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
    exit_with_reader()
    crew = find_crew()
    if notify or exec_ is not None or quiet is not None or try_:
        rows = _notifying_alarms(crew, (notify or [], exec_, quiet), try_)
    else:
        rows = verbs.watch(crew)
    for alarm in rows:
        if as_json:
            printing.print_json_line(alarm)
        else:
            printing.print_now(render_crew.format_alarm(alarm, printing.wants_colours()))


def _notifying_alarms(
    crew: Crew, wanted: tuple[list[str], str | None, str | None], is_trial: bool
) -> Iterator[dict[str, Any]]:
    """Yield the alarms and send them. With ``is_trial``: send a test, and yield nothing."""
    plan = verbs.open_targets(crew, *wanted)
    if is_trial:
        for line in verbs.send_trial(crew, plan):
            printing.print_now(line)
        return
    with verbs.start_senders(crew, plan) as senders:
        yield from verbs.watch(crew, senders.update)
