"""``liza sync``: merge your branch into integration, if the tests pass on the merge."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command
from liza.commands.merge import UntestedOption, announce_tests
from liza.crew.crew import find_crew
from liza.landing.sync import sync as verb
from liza.landing.sync import sync_request
from liza.model.errors import UsageError
from liza.printing import printing

app = create_app()


@declare_command(app, "sync", "liza sync\nliza sync --pr", position=Position(Heading.MERGES, 12))
def sync(
    branch: Annotated[str | None, typer.Argument(help="The branch; default: the branch of your checkout.")] = None,
    accept_moved: Annotated[
        bool,
        typer.Option("--accept-moved", help="Continue if integration was moved and merged tasks are missing from it."),
    ] = False,
    pr: Annotated[
        bool, typer.Option("--pr", help="Make tasks of the red checks and comments of the open pull request instead.")
    ] = False,
    comment: Annotated[
        str | None,
        typer.Option("--comment", metavar="ID", help="With --pr: take only this comment, of any author."),
    ] = None,
    untested: UntestedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Merge your branch into integration, if the tests pass on the merge. This also accepts moves of integration that
    Liza did not make.

    With --pr nothing is merged: the pull request of `liza land --pr` is read through `gh` or `glab`. A red check
    becomes a task, and so does a comment of an author with write access; others are listed. `liza up` does this by
    itself."""
    if (pr and (branch is not None or accept_moved)) or (comment is not None and not pr):
        raise UsageError("--pr takes no branch and no --accept-moved; --comment is for --pr", "liza sync --pr")
    if pr:
        printing.print_result(sync_request(find_crew(), comment), as_json)
        return
    crew = find_crew()
    announce_tests(crew.board, as_json)
    printing.print_result(verb(crew, branch, accept_moved=accept_moved, untested=untested), as_json)
