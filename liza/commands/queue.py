"""``liza queue``: show the merge queue and change its order."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command, declare_group
from liza.commands._last_copy import show_last_copy
from liza.crew.crew import find_crew
from liza.merging import queue as verbs
from liza.printing import printing
from liza.printing.render_queue import format_queue

app = create_app("Show the merge queue and change its order.")
TaskArgument = Annotated[str, typer.Argument(metavar="ID", help="The task.")]


@declare_group(app, "liza queue", in_sessions=True, position=Position(Heading.MERGES, 16))
def queue(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """Show the merge queue: the order of the approved tasks, the batch under test, and the gates with their times."""
    if ctx.invoked_subcommand is not None:
        return
    raise typer.Exit(_print_queue(as_json=as_json) or 0)


@show_last_copy
def _print_queue(*, as_json: bool) -> int | None:
    shown = verbs.show_queue(find_crew())
    printing.print_json(shown) if as_json else printing.print_wrapped(format_queue(shown, printing.wants_colours()))
    return None


@declare_command(app, "move", "liza queue move invoice-model 1", position=Position(Heading.MERGES, 17))
def move(
    task_id: TaskArgument,
    position: Annotated[int, typer.Argument(metavar="POSITION", help="The new position; 1 is merged first.")],
    as_json: JsonOption = False,
) -> None:
    """Merge an approved task earlier or later. Its position counts before priorities and waiting times."""
    printing.print_result(verbs.move(find_crew(), task_id, position), as_json)


@declare_command(
    app, "hold", 'liza queue hold invoice-model "after the release"', position=Position(Heading.MERGES, 18)
)
def hold(
    task_id: TaskArgument,
    why: Annotated[str, typer.Argument(metavar="WHY", help="The reason, for `liza queue` and `liza status`.")],
    as_json: JsonOption = False,
) -> None:
    """Keep a task from being merged until `liza queue release`. Others are merged meanwhile."""
    printing.print_result(verbs.hold(find_crew(), task_id, why), as_json)


@declare_command(app, "release", "liza queue release invoice-model", position=Position(Heading.MERGES, 19))
def release(task_id: TaskArgument, as_json: JsonOption = False) -> None:
    """End the hold of a task, so that it can be merged."""
    printing.print_result(verbs.release(find_crew(), task_id), as_json)


@declare_command(app, "retry", "liza queue retry invoice-model", position=Position(Heading.MERGES, 20))
def retry(task_id: TaskArgument, as_json: JsonOption = False) -> None:
    """Try a task whose merge failed again now, not only after its pause."""
    printing.print_result(verbs.retry(find_crew(), task_id), as_json)
