"""``liza watch``: print each alarm and its end."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

import typer

from liza.alarms import watch as verbs
from liza.commands._declare import Heading, JsonOption, Position, Process, create_app, declare_command
from liza.crew.crew import Crew, find_crew
from liza.printing import printing, render_crew
from liza.printing.columns import paint
from liza.printing.pager import exit_with_reader
from liza.text.formats import format_duration

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
        typer.Option("--quiet", metavar="HOURS", help="Send nothing at 22:00-07:00 local time."),
    ] = None,
    try_: Annotated[bool, typer.Option("--try", help="Send a test to each target, and exit.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print each alarm once, and its end. An alarm that comes back is printed again. Ctrl+C ends the command.

    --json prints one line for each alarm, and none for its end.

    With --notify or --exec, each alarm that needs you is also sent elsewhere, once until it clears. --quiet and --try
    without a target use config.notify, as `liza up` does. See docs/reference/notifications.md.
    """
    exit_with_reader()
    crew = find_crew()
    if notify or exec_ is not None or quiet is not None or try_:
        changes = _notifying_alarms(crew, (notify or [], exec_, quiet), try_)
    else:
        changes = verbs.watch(crew)
    for number, change in enumerate(changes):
        if as_json:
            for alarm in change.raised:
                printing.print_json_line(alarm.fields())
            continue
        start = "" if number else "watching; Ctrl+C ends it\n"
        printing.print_now(start + format_change(change, crew.clock.now(), printing.wants_colours()))


def format_change(change: verbs.AlarmChange, now: datetime, colour: bool) -> str:
    """Return a line for each alarm that ended or was raised, and `no alarm` if none is present."""
    over = paint("over", "green", colour)
    ended = [(alarm.message, (now - (alarm.since or now)).total_seconds()) for alarm in change.ended]
    lines = [f"{over} {message} (after {format_duration(seconds)})" for message, seconds in ended]
    lines += [render_crew.format_alarm(alarm, colour) for alarm in change.raised]
    return "\n".join([*lines, *([] if change.count else ["no alarm"])])


def _notifying_alarms(
    crew: Crew, wanted: tuple[list[str], str | None, str | None], is_trial: bool
) -> Iterator[verbs.AlarmChange]:
    """Yield the changes and send the alarms. With ``is_trial``: send a test, and yield nothing."""
    senders = verbs.open_targets(crew, *wanted, is_trial=is_trial)
    if is_trial:
        for line in senders.run_trial():
            printing.print_now(line)
        return
    with senders:
        for change in verbs.watch(crew):
            senders.keep()
            yield change
