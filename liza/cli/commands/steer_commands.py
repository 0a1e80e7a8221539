"""The commands that steer a crew."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.cli.declare import JsonOption, create_app, declare_command
from liza.cli.render import printing
from liza.crew.crew import find_crew

app = create_app()


@declare_command(app, "claim", "liza claim invoice-model --agent coder-1")
def claim(
    agent: Annotated[str, typer.Option("--agent", metavar="A", help="For whom, such as coder-1.")],
    task_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="The task; default: the best.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Take a task, or for a code-reviewer a review, by hand: its worktree is made, and its lease begins.

    It does not run the set-up (config.sandbox_setup), which a supervisor runs itself: the answer names it where it has
    to run in this worktree, then the test command. Leave an environment of your own first (`deactivate`): with it the
    tests may use your checkout.
    """
    from liza.verbs.claim import claim as verb

    printing.print_result(verb(find_crew(), agent, task_id), as_json)


@declare_command(app, "note", 'liza note --to invoice-pdf "use the fonts in assets/"')
def note(
    text: Annotated[str, typer.Argument(help="What is to be known.")],
    to: Annotated[str | None, typer.Option("--to", metavar="AGENT|TASK", help="For whom; default: everyone.")] = None,
    now: Annotated[bool, typer.Option("--now", help="Bring it into the session that runs, too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a note onto the board."""
    from liza.verbs import note as verbs

    verb = verbs.send_note if now else verbs.note
    printing.print_result(verb(find_crew(), text, to), as_json)


@declare_command(app, "pause", 'liza pause "the spec changes this afternoon"')
def pause(
    why: Annotated[str, typer.Argument(help="Why.")] = "",
    checkpoint: Annotated[
        bool, typer.Option("--checkpoint", help="Stop for a person to look over the sprint.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Let no supervisor take anything new until `liza resume`; sessions that run go on."""
    from liza.verbs import pause as verbs

    verb = verbs.checkpoint if checkpoint else verbs.pause
    printing.print_result(verb(find_crew(), why), as_json)


@declare_command(app, "resume", "liza resume")
def resume(as_json: JsonOption = False) -> None:
    """Take away what `liza pause` put up. While a budget is used up it refuses: raise it first (`liza edit`)."""
    from liza.verbs.resume import resume as verb

    printing.print_result(verb(find_crew()), as_json)


@declare_command(app, "sync", "liza sync")
def sync(
    branch: Annotated[str | None, typer.Argument(help="Which branch; default: the one of your checkout.")] = None,
    accept_moved: Annotated[
        bool,
        typer.Option("--accept-moved", help="Also where integration was moved and has merged tasks no longer."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Bring your branch into integration, as a tested merge; what others have made of integration is accepted by it."""
    from liza.verbs.sync import sync as verb

    printing.print_result(verb(find_crew(), branch, accept_moved=accept_moved), as_json)


@declare_command(app, "merge", "liza merge invoice-model")
def merge(
    task_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="The task; default: the best.")] = None,
    supervisor: Annotated[str | None, typer.Option("--for", hidden=True)] = None,
    as_json: JsonOption = False,
) -> None:
    """Merge an approved task into integration, once its tests pass on the merge. A supervisor does it by itself."""
    from liza.verbs.merge import merge as verb

    done = verb(find_crew(), task_id, supervisor)
    printing.print_result(done, as_json)
    if done.status == "INTEGRATION_FAILED":
        raise typer.Exit(1)
