"""``liza join``: make this clone one of a crew whose board is in PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, Process, create_app, declare_command
from liza.commands.init import Facts
from liza.landing.remotes import record_first_origin
from liza.model.errors import HINT_LABEL
from liza.printing import printing

app = create_app()
UrlArgument = Annotated[
    str, typer.Argument(metavar="URL", help="The board: postgresql://ROLE@HOST/DATABASE?crew=NAME.")
]
HostOption = Annotated[
    str | None, typer.Option("--host", metavar="NAME", help="Name of this host in the crew; default: its host name.")
]


@declare_command(
    app,
    "join",
    'liza join "postgresql://liza@db.example/liza?crew=shop"',
    process=Process.DIRECT,
    position=Position(Heading.START, 15),
)
def join(url: UrlArgument, host: HostOption = None, as_json: JsonOption = False) -> None:
    """Make this clone one of a crew whose board is in PostgreSQL. Its commands work here from now on.

    It must be a clone of the crew's repository. It prints the settings and commands of the board, which count here,
    too: the hosts of a crew trust each other. The URL has no password: PGPASSFILE names the file that has it.
    """
    from liza.project.join import join as verb

    with Facts(as_json) as facts:
        result = verb(Path.cwd(), url, host, facts.say, record_first_origin)
    if as_json:
        printing.print_json(result.to_dict())
        return
    if result.message:
        printing.print_text(result.message)
    printing.print_text(f"{HINT_LABEL}{result.next}")
