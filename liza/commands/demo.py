"""``liza demo``: run a crew of scripted agents on a small project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, Process, create_app, declare_command
from liza.demo.native_run import run_native_demo
from liza.demo.run import run_demo as show

app = create_app()


@declare_command(app, "demo", "liza demo", process=Process.DIRECT, position=Position(Heading.START, 1))
def demo(
    directory: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="A new directory; default: a temporary one.")
    ] = None,
    native: Annotated[
        bool, typer.Option("--native", help="With the workers of examples/worker.py, which use the worker API.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Run a crew of scripted agents on a small project. It needs no AI program and costs nothing."""
    if native:
        return run_native_demo(directory)
    return show(directory)
