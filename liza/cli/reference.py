"""The reference of all commands, as Markdown: ``python -m liza.cli.reference > specs/commands.md``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from liza.cli.app import build_app, load_command
from liza.cli.command_table import HEADINGS

_FOREWORD = """\
# Commands

Made by `python -m liza.cli.reference`; a test compares it with the commands.

Every command prints data on stdout and everything else on stderr. With `--json` the data is JSON, and an error is
`{"error": {"code", "message", "hint"}}` on stderr. A verb that changes the board answers `{"result", "task", "status",
"next"}`, where `result` is `changed` or `unchanged`: said twice, it answers `unchanged` and exits 0.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | refused: a rule says no |
| 2 | the words of the command are wrong |
| 3 | git failed |
| 4 | the board is inconsistent, or the change would make it so; nothing was written |
| 5 | something outside is missing |
| 70 | a bug; the message names a report |
| 75 | a lock was not had in time |
"""


def build_reference() -> str:
    """The whole reference."""
    with build_app().make_context("liza", ["status"], resilient_parsing=True) as ctx:
        parts = [_FOREWORD]
        for heading, paths in HEADINGS:
            parts.append(f"## {heading}\n")
            parts += ["\n".join(_command_section(path, ctx)) for path in paths]
    return "\n".join(parts).rstrip() + "\n"


def _command_section(path: str, ctx: Any) -> Iterator[str]:
    found = _resolve_command(path, ctx)
    about, _, example = str(found.help).partition("\n\n\b\nExample:\n")
    yield f"### liza {path}\n"
    yield about + "\n"
    rows = [record for one in found.get_params(ctx) if (record := _parameter_row(one, ctx)) is not None]
    if rows:
        yield from ("| | |", "|---|---|")
        yield from (f"| `{name}` | {_table_cell(help_text)} |" for name, help_text in rows)
        yield ""
    yield "```"
    yield re.sub(r"^  ", "", example, flags=re.MULTILINE)
    yield "```\n"


def _resolve_command(path: str, ctx: Any) -> Any:
    word, _, rest = path.partition(" ")
    found = load_command(word)
    return found.get_command(ctx, rest) if rest else found


def _parameter_row(one: Any, ctx: Any) -> tuple[str, str] | None:
    if getattr(one, "hidden", False) or "--help" in one.opts or "--json" in one.opts:
        return None
    if one.param_type_name == "argument":
        return one.metavar or one.name.upper(), one.help or ""
    takes = "" if one.is_flag else f" {one.metavar or _value_placeholder(one)}"
    return ", ".join(one.opts) + takes, one.help or ""


def _value_placeholder(one: Any) -> str:
    return "N" if str(one.type.name).startswith(("integer", "float")) else "TEXT"


def _table_cell(help_text: str) -> str:
    return " ".join(help_text.split()).replace("|", "\\|")


if __name__ == "__main__":
    typer.echo(build_reference(), nl=False)
