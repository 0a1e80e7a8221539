"""``liza config``: read and change single settings of the board."""

from __future__ import annotations

from typing import Annotated

import typer

from liza.cli.declare import Heading, JsonOption, Position, create_app, declare_command
from liza.cli.render import printing
from liza.crew.crew import find_crew
from liza.rules.errors import UsageError
from liza.verbs import config as verbs

app = create_app("Read and change the settings of the board.")


@app.callback()
def config() -> None:
    """Read and change the settings of the board."""


@declare_command(app, "get", "liza config get queue.batch", position=Position(Heading.BOARD, 4))
def get(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A setting, such as queue.batch; default: all.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print a setting of the board. Without NAME, print all settings with their values and defaults."""
    shown = verbs.get_settings(find_crew(), name)
    if as_json:
        printing.print_json(shown if name is None else shown["settings"][0])
        return
    rows = shown["settings"]
    if name is not None:
        printing.print_text(verbs.format_value(rows[0]["value"]))
    else:
        width = max(len(row["name"]) for row in rows)
        for row in rows:
            value, default = verbs.format_value(row["value"]), verbs.format_value(row["default"])
            printing.print_text(
                f"{row['name']:<{width}}  {value}" + ("" if value == default else f"  (default: {default})")
            )
    for row in rows:
        if row.get("unconfirmed"):
            on_board = verbs.format_value(row["on_board"])
            printing.print_notice(f"the board has config.{row['name']} {on_board}, which no person has confirmed")


@declare_command(
    app, "set", "liza config set queue.batch 5\nliza config set slots.max null", position=Position(Heading.BOARD, 5)
)
def set_(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A setting, such as queue.batch.")],
    value: Annotated[
        str | None,
        typer.Argument(metavar="[VALUE]", help="A text, a number, true, false, null, a,b, or JSON."),
    ] = None,
    default: Annotated[bool, typer.Option("--default", help="Set it back to its default.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Change a setting of the board. Comments on the board stay. Only for people: the change counts as confirmed.

    `liza config get` lists the names. A wrong value is answered with those that are allowed.
    """
    if (value is None) is not default:
        raise UsageError("give either a value or --default", f"liza config set {name} VALUE")
    printing.print_result(verbs.set_setting(find_crew(), name, value), as_json)
