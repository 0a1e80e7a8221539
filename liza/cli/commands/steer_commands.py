"""Commands that steer a crew."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.cli.commands import fast_commands
from liza.cli.declare import JsonOption, create_app, declare_command
from liza.cli.render import printing
from liza.crew.crew import find_crew

app = create_app()


@declare_command(app, "claim", "liza claim invoice-model --agent coder-1")
def claim(
    agent: Annotated[str, typer.Option("--agent", metavar="A", help="The agent, such as coder-1.")],
    task_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The task; default: the first in order.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Claim a task by hand: create its worktree and start its lease. A code-reviewer claims a review.

    It does not run the set-up command (config.sandbox_setup): only a supervisor runs it. The output names the set-up
    command if you have to run it in this worktree before the test command. If a virtual environment is activated, run
    `deactivate` first: otherwise the tests may use your checkout.
    """
    fast_commands.claim(agent, task_id, as_json)


@declare_command(app, "note", 'liza note --to invoice-pdf "use the fonts in assets/"')
def note(
    text: Annotated[str, typer.Argument(help="The text of the note.")],
    to: Annotated[
        str | None, typer.Option("--to", metavar="AGENT|TASK", help="The recipient; default: the whole crew.")
    ] = None,
    now: Annotated[bool, typer.Option("--now", help="Also deliver it to the running session.")] = False,
    priority: Annotated[
        str | None,
        typer.Option(
            "--priority",
            metavar="system|urgent|normal",
            help="With --now: at the next edge of a turn (default), at once by an interrupt, or after the turn.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Add a note to the board."""
    fast_commands.note(text, to, now, priority, as_json)


@declare_command(app, "pause", 'liza pause "the spec changes this afternoon"')
def pause(
    why: Annotated[str, typer.Argument(help="The reason.")] = "",
    checkpoint: Annotated[
        bool, typer.Option("--checkpoint", help="Start nothing new until a person has reviewed the sprint.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Start no new work until `liza resume`. Running sessions continue."""
    from liza.verbs import pause as verbs

    verb = verbs.checkpoint if checkpoint else verbs.pause
    printing.print_result(verb(find_crew(), why), as_json)


@declare_command(app, "resume", "liza resume")
def resume(as_json: JsonOption = False) -> None:
    """Remove the signals of `liza pause`. Refused while a budget is used up: raise it with `liza edit`."""
    from liza.verbs.resume import resume as verb

    printing.print_result(verb(find_crew()), as_json)


@declare_command(app, "sync", "liza sync")
def sync(
    branch: Annotated[str | None, typer.Argument(help="The branch; default: the branch of your checkout.")] = None,
    accept_moved: Annotated[
        bool,
        typer.Option("--accept-moved", help="Continue if integration was moved and merged tasks are missing from it."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Merge your branch into integration, if the tests pass on the merge. This also accepts moves of integration that
    Liza did not make."""
    from liza.verbs.sync import sync as verb

    printing.print_result(verb(find_crew(), branch, accept_moved=accept_moved), as_json)


@declare_command(app, "merge", "liza merge invoice-model")
def merge(
    task_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The task; default: the first in order.")
    ] = None,
    supervisor: Annotated[str | None, typer.Option("--for", hidden=True)] = None,
    as_json: JsonOption = False,
) -> None:
    """Merge an approved task into integration, if the tests pass on the merge. Supervisors do this without a request.

    Exit 1 if the task was returned to its coder."""
    raise typer.Exit(fast_commands.merge(task_id, supervisor, as_json))
