"""``liza board``: put the board of a crew into PostgreSQL, or take it back into files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, Process, create_app, declare_command
from liza.commands.join import HostOption, UrlArgument
from liza.crew.crew import find_crew, find_crew_or_none
from liza.printing import printing

app = create_app("Put the board of this crew into PostgreSQL, or take it back into files.")


@declare_command(
    app,
    "migrate",
    'liza board migrate "postgresql://owner@db.example/liza?crew=shop"',
    process=Process.DIRECT,
    position=Position(Heading.BOARD, 20),
)
def migrate(url: UrlArgument, as_json: JsonOption = False) -> None:
    """Create or update the tables in a database, with a role that owns them. No data is lost.

    The hosts of a crew use roles that own nothing. It may run while a crew works.
    """
    from liza.project import board_moves

    printing.print_result(board_moves.migrate(find_crew_or_none(), url), as_json)


@declare_command(
    app,
    "import",
    'liza board import --url "postgresql://liza@db.example/liza?crew=shop"',
    process=Process.DIRECT,
    position=Position(Heading.BOARD, 21),
)
def import_(
    url: Annotated[str, typer.Option("--url", metavar="URL", help="Where the board goes.")],
    host: HostOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move the board of this crew from files into PostgreSQL, with its revisions and archived tasks.

    The crew must be paused, and no supervisor or session may run. What arrived is compared with the file; the file
    stays as .liza/state.yaml.before-server. Other clones join with liza join URL.
    """
    from liza.project import board_moves

    printing.print_result(board_moves.import_board(find_crew(), url, host), as_json)


@declare_command(
    app,
    "export",
    "liza board export ../shop-board\nliza board export",
    process=Process.DIRECT,
    position=Position(Heading.BOARD, 22),
)
def export(
    path: Annotated[
        Path | None, typer.Argument(metavar="[PATH]", help="A new directory for a copy. The board stays where it is.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a copy of the board as files, with its revisions and archived tasks. liza validate PATH checks it.

    Without PATH the board of a paused crew moves back into the files of this clone. The rows stay in the database
    under another name, and other clones of the crew find no board any more.
    """
    from liza.project import board_moves

    printing.print_result(board_moves.export_board(find_crew(), path), as_json)
