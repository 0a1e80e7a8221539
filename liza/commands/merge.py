"""``liza merge``: merge approved tasks into integration, if the tests pass on the merge."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from liza.board.contract import Board
from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command
from liza.crew.crew import Crew, find_crew
from liza.merging.merge import merge as merge_task
from liza.merging.merge import merge_each
from liza.model.model import Status
from liza.model.value_classes import replace
from liza.printing import printing

app = create_app()
UntestedOption = Annotated[
    bool, typer.Option("--untested", help="Also if the tests say nothing about the commit. Red tests still refuse.")
]


@declare_command(app, "merge", "liza merge invoice-model", position=Position(Heading.MERGES, 13))
def merge(
    tasks: Annotated[
        list[str] | None, typer.Argument(metavar="[ID…]", help="The tasks; default: the first in order.")
    ] = None,
    supervisor: Annotated[str | None, typer.Option("--for", hidden=True)] = None,
    untested: UntestedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Merge approved tasks into integration, if the tests pass on the merge. Supervisors do this without a request.

    Exit 1 if a task was returned to its coder, or one of several was not merged; the others are merged."""
    crew = find_crew()
    if len(tasks or ()) > 1:
        result = merge_each(crew, tasks or (), untested=untested)
        is_done = not result.details["failed"]
    else:
        if supervisor is None:
            announce_tests(crew.board, as_json)
        result = merge_task(crew, tasks[0] if tasks else None, supervisor, untested=untested)
        is_done = result.status != Status.INTEGRATION_FAILED and not result.details.get("returned")
    remarks = _tell_authors(crew, (*result.details.get("returned", ()), *result.details.get("failed", ())))
    printing.print_result(replace(result, remarks=(*result.remarks, *remarks)), as_json)
    raise typer.Exit(0 if is_done else 1)


def _tell_authors(crew: Crew, returned: Sequence[str]) -> tuple[str, ...]:
    """Comment on the pull requests of work that does not merge. Return a sentence for each."""
    if not returned:
        return ()
    # Loaded now: most merges return nothing.
    from liza.landing.submitted_requests import comment_returns

    return comment_returns(crew, returned)


def announce_tests(board: Board, as_json: bool) -> None:
    """Tell a person at a terminal which tests the command waits for: they can take minutes."""
    command = board.read().config.integration_command if sys.stderr.isatty() and not as_json else None
    if command:
        printing.print_notice(f"testing with: {command}")
