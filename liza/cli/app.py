"""The commands put together with typer, each module only when one of its words is typed."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from liza import __version__
from liza.cli.command_table import COMMAND_MODULES, HEADINGS
from liza.cli.declare import TYPER_SETTINGS, create_app
from liza.rules.errors import UsageError
from liza.rules.suggestions import closest_match

_CLICK_ERROR: Any = typer.BadParameter.__mro__[2]
"""typer's own error of everything that was typed wrong; it has no public name in every version."""


class CommandGroup(TyperGroup):
    """``liza``: finds a command's module by its word, and lists the commands under their headings."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMAND_MODULES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return load_command(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and args[0] not in COMMAND_MODULES:
            likely = closest_match(args[0], COMMAND_MODULES)
            told = f"no such command {args[0]!r}" + (f"; did you mean {likely}?" if likely else "")
            raise UsageError(told, f"liza {likely} --help" if likely else "liza --help")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for heading, paths in HEADINGS:
            with formatter.section(heading):
                formatter.write_dl([(path, _short_help(path, ctx)) for path in paths], col_max=18)


def load_command(word: str) -> Any:
    """The command, or the group of commands, of a word; None where there is none."""
    if word not in COMMAND_MODULES:
        return None
    module = importlib.import_module(f"liza.cli.commands.{COMMAND_MODULES[word]}")
    if COMMAND_MODULES[word] == word and not any(info.name == word for info in module.app.registered_commands):
        found = typer.main.get_command(module.app)
    else:
        alone = create_app()
        alone.registered_commands = [info for info in module.app.registered_commands if info.name == word]
        found = typer.main.get_command(alone)
    found.name = word
    return found


def _short_help(path: str, ctx: Any) -> str:
    word, _, rest = path.partition(" ")
    found = load_command(word)
    if rest:
        found = found.get_command(ctx, rest)
    return str(found.get_short_help_str(90))


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"liza {__version__}")
        raise typer.Exit


def build_app() -> Any:
    """The whole of ``liza``."""
    app = typer.Typer(cls=CommandGroup, invoke_without_command=True, **{**TYPER_SETTINGS, "add_completion": True})

    @app.callback()
    def liza(
        ctx: typer.Context,
        version: Annotated[
            bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Say which.")
        ] = False,
    ) -> None:
        """Coordinate AI coding agents that work on one git repository at the same time.

        Each command tells more with --help, prints data on stdout, and takes --json.
        """
        if ctx.invoked_subcommand is None:
            typer.echo(ctx.get_help())

    return typer.main.get_command(app)


def run_liza(words: Sequence[str]) -> int:
    """Carry out what was typed; the exit code. Raises LizaError; what typer finds wrong is Usage."""
    whole = build_app()
    if "_LIZA_COMPLETE" in os.environ:
        whole.main(list(words), prog_name="liza")
    return _invoke(whole, words, "liza")


def run_liza_agent(words: Sequence[str]) -> int:
    """Carry out ``liza-agent``."""
    supervise = importlib.import_module("liza.cli.commands.supervise")

    return _invoke(typer.main.get_command(supervise.app), words, "liza-agent")


def _invoke(whole: Any, words: Sequence[str], name: str) -> int:
    try:
        with whole.make_context(name, list(words)) as ctx:
            code = whole.invoke(ctx)
    except typer.Exit as done:
        return int(done.exit_code)
    except typer.Abort:
        return 130
    except _CLICK_ERROR as wrong:
        where = getattr(getattr(wrong, "ctx", None), "command_path", name)
        text = " ".join(wrong.format_message().split())
        raise UsageError(text[:1].lower() + text[1:].rstrip("."), f"{where} --help") from None
    return code if isinstance(code, int) else 0
