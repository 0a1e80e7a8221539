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
from liza.commands._declare import SHORT_HELP, TYPER_SETTINGS, Heading, Process
from liza.commands._slips import refuse_slip, unknown_command
from liza.model.errors import Refused, UsageError
from liza.system.ancestors import is_called_from_box

_CLICK_ERROR: Any = typer.BadParameter.__mro__[2]
"""typer's error class for usage errors. Some versions of typer have no public name for it."""
_NO_COMMANDS = ("liza_agent",)
"""Modules of `liza/commands` that are no command of `liza`, beside those that begin with an underscore."""
EVERYDAY: Final = (
    "demo",
    "doctor",
    "init",
    "start",
    "up",
    "status",
    "answer",
    "diff",
    "logs",
    "land",
    "down",
    "task add",
)
"""The commands in `liza --help`: what a person needs from the first goal to its landing."""
_MORE: Final = "  One of them: liza help up. All commands, in groups: liza help --all"


class CommandGroup(TyperGroup):
    """``liza``: load a command's module by its name, and list the commands of every day, or all by headings."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(command_names())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return load_command(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and args[0] not in command_names() and not ctx.resilient_parsing:
            raise unknown_command(args, command_names())
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        formatter.write(_format_rows("", EVERYDAY))
        formatter.write(f"\n{_MORE}\n")

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for heading, paths in list_headings():
            formatter.write(_format_rows(heading, paths))

    def format_all(self, ctx: Any) -> str:
        """Return the help with all commands and options."""
        formatter = ctx.make_formatter()
        super().format_help(ctx, formatter)
        return str(formatter.getvalue()).rstrip("\n")

    def list_help(self, words: Sequence[str]) -> list[dict[str, str]]:
        """Return the commands that begin with these words, with their headings and their lines. Raises UsageError."""
        wanted = list(words)
        rows = [
            {"command": path, "group": heading, "help": _short_help(path)}
            for heading, paths in list_headings()
            for path in paths
            if path.split()[: len(wanted)] == wanted
        ]
        if not rows:
            raise unknown_command(wanted, command_names())
        return rows


def _format_rows(heading: str, paths: Sequence[str]) -> str:
    width = max(map(len, paths))
    lines = [f"  {path:<{width}}  {_short_help(path)}\n" for path in paths]
    return "".join(["\n", *([f"{heading}:\n"] if heading else []), *lines])


@cache
def command_names() -> tuple[str, ...]:
    """Return the names of all commands: those of the files in ``liza/commands``."""
    names = (info.name for info in pkgutil.iter_modules(commands.__path__))
    return tuple(name.replace("_", "-") for name in names if not name.startswith("_") and name not in _NO_COMMANDS)


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
    """Return the headings of ``liza help --all``, each with its commands in order. It imports all commands."""
    positions: dict[Heading, list[tuple[int, str]]] = {heading: [] for heading in Heading}
    for name in command_names():
        command = load_command(name)
        for path, part in [(name, command), *((f"{name} {word}", part) for word, part in _parts(command).items())]:
            position = getattr(part.callback, "position", None)
            if position is not None:
                positions[position.heading].append((position.number, path))
    return [(heading.value, [path for _, path in sorted(rows)]) for heading, rows in positions.items()]


def list_parts(words: Sequence[str]) -> list[str]:
    """Return the commands of the group that the words name; without words, all commands."""
    return list(_parts(load_command(words[0]))) if len(words) == 1 else [] if words else list(command_names())


def _parts(command: Any) -> dict[str, Any]:
    """Return the commands of a group; empty for a single command."""
    return dict(getattr(command, "commands", {}))


def load_all_commands() -> None:
    """Build the application with all its commands, for processes that are forked from this one."""
    build_app()
    list_headings()


def find_process(words: Sequence[str]) -> Process:
    """Return where the command with these words runs. Words that are no command are refused anywhere."""
    _, command = find_command(words)
    function = getattr(command, "callback", None)
    if set(getattr(function, "direct_options", ())).intersection(words):
        return Process.DIRECT
    return getattr(function, "process", Process.SERVED)


def find_command(words: Sequence[str]) -> tuple[str, Any]:
    """Return the name and the command that these words call; None if there is no such command.

    An option of a group has no value, so the first word that names a part of the group is this part.
    """
    name, command = " ".join(words[:1]), load_command(words[0]) if words else None
    for word in words[1:]:
        if word in _parts(command):
            name, command = f"{name} {word}", _parts(command)[word]
    return name, command


_HELP: Final = (["--help"], ["-h"], ["--version"], ["-V"], ["version"])


def is_completing() -> bool:
    """Return whether a shell asks for completions; it calls with no words of its own."""
    return "_LIZA_COMPLETE" in os.environ


def refuse_in_sessions(words: Sequence[str]) -> None:
    """Raise Refused if these words are no command that is answered when a process in a box calls it."""
    name, command = find_command(words)
    is_help = list(words) in _HELP or (command is not None and list(words[1:]) == ["--help"])
    is_unknown = command is None and name != "" and not name.startswith("-")  # It has a message of its own.
    if not (is_help or is_unknown or is_for_sessions(command)):
        raise Refused(f"{f'liza {name}'.rstrip()} is for a person, who types it outside of every session", "liza ready")


def is_for_sessions(command: Any) -> bool:
    """Return whether a process in the box of a session can call this command."""
    return bool(getattr(getattr(command, "callback", None), "in_sessions", False))


def _short_help(path: str) -> str:
    name, _, part = path.partition(" ")
    command = load_command(name)
    return str((_parts(command)[part] if part else command).get_short_help_str(SHORT_HELP + 1))


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
            bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version.")
        ] = False,
    ) -> None:
        """Coordinate AI coding agents that work on one git repository at the same time.

        Begin with `liza demo`, or in a repository: `liza doctor`, `liza init "what you want"`, `liza up`. `liza status`
        shows what waits for you, each with a command. Each command has --help and --json.
        """
        if ctx.invoked_subcommand is None:
            typer.echo(ctx.get_help())

    return typer.main.get_command(app)


def run_liza(words: Sequence[str]) -> int:
    """Run the typed command and return its exit code. Raises LizaError; errors of typer become UsageError."""
    app = build_app()
    words = ["--version"] if list(words) == ["version"] else words
    if is_called_from_box():
        refuse_in_sessions(words)
    if is_completing():
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
        option = getattr(error, "option_name", "")
        _refuse_unmarked_value(words, name, option, command_path)
        refuse_slip(words, command_path, option)
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
