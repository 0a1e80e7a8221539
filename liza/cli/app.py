"""Build the typer application. The file of a command is imported when the command is used."""

from __future__ import annotations

import importlib
import os
import pkgutil
import shlex
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from liza import __version__, commands
from liza.commands._declare import TYPER_SETTINGS, Heading, Process
from liza.model.errors import Refused, UsageError
from liza.system.ancestors import is_called_from_box
from liza.text.formats import closest_match

_CLICK_ERROR: Any = typer.BadParameter.__mro__[2]
"""typer's error class for usage errors. Some versions of typer have no public name for it."""
_NO_COMMANDS = ("liza_agent", "_declare")
"""Modules of `liza/commands` that are no command of `liza`."""


class CommandGroup(TyperGroup):
    """``liza``: load a command's module by its name, and list the commands under their headings."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(command_names())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return load_command(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and args[0] not in command_names():
            suggestion = closest_match(args[0], command_names())
            message = f"no such command {args[0]!r}" + (f"; did you mean {suggestion}?" if suggestion else "")
            raise UsageError(message, f"liza {suggestion} --help" if suggestion else "liza --help")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for heading, paths in list_headings():
            with formatter.section(heading):
                formatter.write_dl([(path, _short_help(path, ctx)) for path in paths], col_max=18)


@cache
def command_names() -> tuple[str, ...]:
    """Return the names of all commands: those of the files in ``liza/commands``."""
    names = (info.name for info in pkgutil.iter_modules(commands.__path__))
    return tuple(name.replace("_", "-") for name in names if name not in _NO_COMMANDS)


@cache
def load_command(name: str) -> Any:
    """Return the command, or group of commands, of this name; None if no command has it."""
    if name not in command_names():
        return None
    command = typer.main.get_command(import_command(name).app)
    command.name = name
    return command


def import_command(name: str) -> Any:
    """Import the file of a command. The others are not imported."""
    return importlib.import_module(f"liza.commands.{name.replace('-', '_')}")


def list_headings() -> list[tuple[str, list[str]]]:
    """Return the headings of ``liza --help``, each with its commands in order. It imports all commands."""
    positions: dict[Heading, list[tuple[int, str]]] = {heading: [] for heading in Heading}
    for name in command_names():
        command = load_command(name)
        for path, part in [(name, command), *((f"{name} {word}", part) for word, part in _parts(command).items())]:
            position = getattr(part.callback, "position", None)
            if position is not None:
                positions[position.heading].append((position.number, path))
    return [(heading.value, [path for _, path in sorted(rows)]) for heading, rows in positions.items()]


def _parts(command: Any) -> dict[str, Any]:
    """Return the commands of a group; empty for a single command."""
    return dict(getattr(command, "commands", {}))


def load_all_commands() -> None:
    """Build the application with all its commands, for processes that are forked from this one."""
    build_app()
    list_headings()


def find_process(words: Sequence[str]) -> Process:
    """Return where the command with these words runs. Words that are no command are refused anywhere."""
    _, command = _find_command(words)
    return getattr(getattr(command, "callback", None), "process", Process.SERVED)


def _find_command(words: Sequence[str]) -> tuple[str, Any]:
    """Return the name and the command that these words call; None if there is no such command.

    An option of a group has no value, so the first word that names a part of the group is this part.
    """
    name, command = " ".join(words[:1]), load_command(words[0]) if words else None
    for word in words[1:]:
        if word in _parts(command):
            name, command = f"{name} {word}", _parts(command)[word]
    return name, command


_HELP: Final = (["--help"], ["-h"], ["--version"])


def refuse_in_sessions(words: Sequence[str]) -> None:
    """Raise Refused if these words are no command that is answered when a process in a box calls it."""
    name, command = _find_command(words)
    is_help = list(words) in _HELP or (command is not None and list(words[1:]) == ["--help"])
    is_unknown = command is None and name != "" and not name.startswith("-")  # It has a message of its own.
    if not (is_help or is_unknown or is_for_sessions(command)):
        raise Refused(f"{f'liza {name}'.rstrip()} is for a person, who types it outside of every session", "liza ready")


def is_for_sessions(command: Any) -> bool:
    """Return whether a process in the box of a session can call this command."""
    return bool(getattr(getattr(command, "callback", None), "in_sessions", False))


def _short_help(path: str, ctx: Any) -> str:
    name, _, rest = path.partition(" ")
    command = load_command(name)
    if rest:
        command = command.get_command(ctx, rest)
    return str(command.get_short_help_str(90))


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"liza {__version__}")
        raise typer.Exit


@cache
def build_app() -> Any:
    """Return the whole application ``liza``."""
    app = typer.Typer(cls=CommandGroup, invoke_without_command=True, **{**TYPER_SETTINGS, "add_completion": True})

    @app.callback()
    def liza(
        ctx: typer.Context,
        version: Annotated[
            bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
        ] = False,
    ) -> None:
        """Coordinate AI coding agents that work on one git repository at the same time.

        Begin with `liza demo`, or in a repository: `liza doctor`, `liza init "what you want"`, `liza up`. `liza status`
        shows what waits for you, each with a command. `liza explain` says what it means.

        Each command has --help and --json, and prints its data on stdout.
        """
        if ctx.invoked_subcommand is None:
            typer.echo(ctx.get_help())

    return typer.main.get_command(app)


def run_liza(words: Sequence[str]) -> int:
    """Run the typed command and return its exit code. Raises LizaError; errors of typer become UsageError."""
    app = build_app()
    if is_called_from_box():
        refuse_in_sessions(words)
    if "_LIZA_COMPLETE" in os.environ:
        app.main(list(words), prog_name="liza")
    return _invoke(app, words, "liza")


def run_liza_agent(words: Sequence[str]) -> int:
    """Run ``liza-agent``."""
    return _invoke(typer.main.get_command(import_command("liza_agent").app), words, "liza-agent")


def _invoke(app: Any, words: Sequence[str], name: str) -> int:
    """Run a typer application; return the exit code of the command, 0 if it returns none."""
    try:
        with app.make_context(name, list(words)) as ctx:
            code = app.invoke(ctx)
    except typer.Exit as exit_:
        return int(exit_.exit_code)
    except typer.Abort:
        return 130
    except _CLICK_ERROR as error:
        command_path = getattr(getattr(error, "ctx", None), "command_path", name)
        _refuse_unmarked_value(words, name, getattr(error, "option_name", ""), command_path)
        text = " ".join(error.format_message().split())
        raise UsageError(text[:1].lower() + text[1:].rstrip("."), f"{command_path} --help") from None
    return code if isinstance(code, int) else 0


def _refuse_unmarked_value(words: Sequence[str], name: str, option: str, command_path: str) -> None:
    """Raise UsageError if the unknown ``option`` is the value of a setting, such as a negative number."""
    if command_path != "liza config set" or not option or option.startswith("--"):
        return
    index = next(index for index, word in enumerate(words) if word.startswith(option))
    later = words[index + 1 :]
    options = [word for word in later if word.startswith("--")]
    others = [word for word in later if not word.startswith("--")]
    command = shlex.join([name, *words[:index], *options, "--", words[index], *others])
    raise UsageError(f"{words[index]} begins with -, so it is read as an option: type -- before it", command)
