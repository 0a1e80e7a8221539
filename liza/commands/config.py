"""``liza config``: read and change single settings of the board."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, create_app, declare_command
from liza.commands._last_copy import show_last_copy
from liza.config.rules.setting_meanings import MEANINGS, USUAL, WRITTEN_BY_LIZA
from liza.config.rules.setting_values import SettingValue
from liza.crew.crew import find_crew
from liza.model.errors import UsageError
from liza.printing import printing
from liza.printing.columns import shorten_line
from liza.project import config_verb as verbs

app = create_app("Read and change the settings of the board.")


@app.callback()
def config() -> None:
    """Read and change the settings of the board."""


@declare_command(
    app,
    "get",
    "liza config get\nliza config get --all\nliza config get queue.batch",
    in_sessions=True,
    position=Position(Heading.BOARD, 4),
)
@show_last_copy
def get(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A setting, such as queue.batch.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="All settings, with their defaults.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print a setting of the board. Without NAME: those that were changed, and the usual ones.

    --json without NAME prints all settings.
    """
    if all_ and name is not None:
        raise UsageError("--all prints all settings, and takes no NAME", "liza config get --all")
    shown = verbs.get_settings(find_crew().board, name)
    if as_json:
        printing.print_json(shown if name is None else shown.settings[0])
        return
    rows = shown.settings
    if name is not None:
        printing.print_text(verbs.format_value(rows[0].value))
    else:
        printing.print_wrapped(format_all(rows) if all_ else format_usual(rows, printing.text_width()))
    for row in rows:
        if row.unconfirmed:
            on_board = verbs.format_value(row.on_board)
            printing.print_notice(f"the board has config.{row.name} {on_board}, which no person has confirmed")


MAX_VALUE = 18
"""Characters of a value in the table of the usual settings."""


def format_usual(rows: Sequence[SettingValue], width: int | None) -> str:
    """Return the settings that a person changed, and the usual ones, a line each, cut to ``width``."""
    settable = [row for row in rows if not row.name.startswith(WRITTEN_BY_LIZA)]
    changed = [row for row in settable if row.value != row.default]
    usual = [row for row in settable if row.name in USUAL and row not in changed]
    names = max(len(row.name) for row in (*changed, *usual))
    lines = []
    for label, group in (("changed:", changed), ("default:", usual)):
        lines += [label] if group else []
        for row in group:
            value = shorten_line(_with_unit(row, row.value), MAX_VALUE)
            start = f"{row.name:<{names}}  {value:<{MAX_VALUE}}  "
            text = MEANINGS[row.name].text
            lines.append(start + (text if width is None else shorten_line(text, width - len(start))))
    return "\n".join([*lines, f"all {len(rows)}: liza config get --all; one: liza config get NAME"])


def format_all(rows: Sequence[SettingValue]) -> str:
    """Return all settings with their values, defaults and meanings."""
    lines = []
    for row in rows:
        default = "" if row.value == row.default else f"  (default: {_with_unit(row, row.default)})"
        lines += [f"{row.name}  {_with_unit(row, row.value)}{default}", f"  {MEANINGS[row.name].text}"]
    return "\n".join(lines)


def _with_unit(row: SettingValue, value: object) -> str:
    unit = MEANINGS[row.name].unit
    return verbs.format_value(value) + (f" {unit}" if unit and value is not None else "")


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

    `liza config get --all` lists the names. A wrong value is answered with those that are allowed.
    """
    if (value is None) is not default:
        raise UsageError("give either a value or --default", f"liza config set {name} VALUE")
    printing.print_result(verbs.set_setting(find_crew(), name, value), as_json)
