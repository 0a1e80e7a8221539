"""``liza bug-report``: write one file for a bug report."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command
from liza.model.errors import HINT_LABEL
from liza.printing import printing
from liza.recovery.bug_report import write_bug_report
from liza.text.formats import format_bytes

app = create_app()


@declare_command(app, "bug-report", "liza bug-report", position=Position(Heading.START, 14))
def bug_report(
    output: Annotated[
        Path | None, typer.Option("--output", metavar="F", help="The file; default: a new one below .liza.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write one file for a bug report: versions, settings, board, the ends of journal and logs, what doctor finds.

    Recognised secrets and the path of your home directory are cut. Nothing is sent. Read it before you share it: it has
    the texts of your tasks and what your agents printed.
    """
    report = write_bug_report(Path.cwd(), output)
    if as_json:
        printing.print_json(report)
        return
    for row in report["files"]:
        printing.print_text(f"  {row['name']}  {format_bytes(row['size'])}{', its end' if row['cut'] else ''}")
    for name in report["left_out"]:
        printing.print_text(f"  {name} is left out: the report has its maximum size")
    printing.print_text(
        f"{report['path']}, {format_bytes(report['size'])}. Recognised secrets are cut. Nothing was sent."
    )
    printing.print_text(f"{HINT_LABEL}{shlex.join(['tar', '-xzOf', report['path']])} | less")
