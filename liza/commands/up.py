"""``liza up``: start the crew."""

from __future__ import annotations

import errno
from datetime import datetime
from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, Process, create_app, declare_command
from liza.crew.crew import find_crew
from liza.model.errors import UsageError
from liza.printing import printing, render_crew
from liza.supervisor import start as crews

app = create_app()
VerboseOption = Annotated[
    bool,
    typer.Option("-v", "--verbose", help="Print also readiness, conversations, and plans that changed nothing."),
]
_CONTINUES = "the crew continues: liza status, or liza down to stop it"


@declare_command(
    app,
    "up",
    "liza up --coders 2 --program coder=claude@sonnet\nliza up coder-2",
    process=Process.DIRECT,
    position=Position(Heading.START, 4),
)
def up(
    agents: Annotated[
        list[str] | None,
        typer.Argument(metavar="[AGENT]...", help="Only these agents, such as coder-2; default: the whole crew."),
    ] = None,
    coders: Annotated[int | None, typer.Option("--coders", min=0, help="Number of coders; default 1.")] = None,
    reviewers: Annotated[int | None, typer.Option("--reviewers", min=0, help="Number of reviewers; default 1.")] = None,
    planners: Annotated[int | None, typer.Option("--planners", min=0, help="Number of planners; default 1.")] = None,
    program: Annotated[
        list[str] | None,
        typer.Option(
            "--program",
            metavar="[WHO=]PROGRAM",
            help="NAME, NAME@MODEL or script:COMMAND; with WHO, only for this role or agent; default: the last choice.",
        ),
    ] = None,
    terminal: Annotated[
        bool, typer.Option("--tmux", help="Run each session in a terminal, for `liza attach`.")
    ] = False,
    detached: Annotated[bool, typer.Option("-d", "--detach", help="Leave the crew running, and return.")] = False,
    exit_when_done: Annotated[
        bool,
        typer.Option("--exit-when-done", help="Stop when the goal is reached, or when only a person can go on."),
    ] = False,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> int:
    """Start the crew: one planner, one coder and one reviewer by default. Ctrl+C stops it.

    With AGENT, start single agents, of a crew that runs or not. `liza down AGENT` stops them.
    What --program names is remembered: `liza config get programs`.

    A second Ctrl+C stops it at once. A third one kills all its processes. Each line starts with the time of day. If the
    reader of the output exits (`| head`), the output ends and the crew continues.

    With --exit-when-done, the exit code is 0 if the goal is reached, and 76 if only a person can go on: a question, a
    held task, a draft, a verdict, a used-up budget, a trip of the circuit breaker. The last lines say what waits, each
    with its command. It is 1 or 5 if agents left and no other one can continue. A pause that you set ends nothing.
    """
    default_program, programs = crews.parse_programs(program or [])
    counts = {"planners": planners, "coders": coders, "reviewers": reviewers}
    given = {name: count for name, count in counts.items() if count is not None}
    names = crews.parse_names(agents or ())
    if names and given:
        raise UsageError(
            f"{names[0]} and --{next(iter(given))} cannot be combined: name agents, or give numbers",
            f"liza up {' '.join(names)}",
        )
    options = crews.UpOptions(
        planners=given.get("planners", 1),
        coders=given.get("coders", 1),
        reviewers=given.get("reviewers", 1),
        names=names,
        program=default_program,
        programs=programs,
        detached=detached,
        terminal=terminal,
        exit_when_done=exit_when_done,
        verbose=verbose,
    )
    return crews.up(find_crew(), options, Steps(as_json))


class Steps:
    """Prints the output of `up`.

    When the reader of stdout has gone (a closed pipe or terminal), this is reported on stderr, and later lines of `up`
    itself go there: the Ctrl+C that ends `| tee` also stops the crew.
    """

    def __init__(self, as_json: bool) -> None:
        self._as_json, self._gone = as_json, False

    def __call__(self, agent: str, text: str, when: datetime) -> None:
        """Print one line. Raises OSError if the disk is full."""
        if self._gone:
            if not agent:
                printing.print_notice(f"{printing.time_of_day(when)}  {text}")
            return
        try:
            self._write(agent, text, when)
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
            self._gone = True
            printing.discard_output(_CONTINUES if agent else text)

    def _write(self, agent: str, text: str, when: datetime) -> None:
        if self._as_json:
            printing.print_json_line({"time": when, "agent": agent or None, "event": text})
        else:
            printing.print_row(render_crew.format_feed_start(agent, when, printing.wants_colours()), text)
