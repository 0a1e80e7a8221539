"""``liza gc``: free space below .liza."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command
from liza.crew.crew import find_crew
from liza.printing import printing
from liza.recovery.gc import gc as verb

app = create_app()


@declare_command(app, "gc", "liza gc --dry-run", position=Position(Heading.BOARD, 2))
def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be freed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Free space below .liza: compress old run directories and old logs, delete files of crashed writers.

    A run is old if its agent has 20 newer ones, no open task names it and its session is over. The log of a merge is
    old a day after its last line, once its task is closed; logs up to 4 KB stay. Nothing is deleted that is not saved,
    and nothing that a living process uses.
    """
    printing.print_result(verb(find_crew(), dry_run), as_json)
