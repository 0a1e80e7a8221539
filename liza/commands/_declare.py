"""Shared functions of the modules of commands: declare a command, parse its arguments."""

from __future__ import annotations

import inspect
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import typer
from typer.core import TyperGroup

from liza.commands._slips import unknown_command
from liza.model.errors import Missing, UsageError
from liza.system.ancestors import is_called_from_box
from liza.system.files import MAX_BOARD_SIZE

TYPER_SETTINGS: Final[dict[str, Any]] = {
    "add_completion": False,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 110},
}


SHORT_HELP = 60
"""Characters of a command's line in `liza help --all`: beside its name, they fit on 80 columns."""


class CommandParts(TyperGroup):
    """A command with subcommands, such as ``liza task``. Of an unknown word it names the subcommand that is meant."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        names = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in names and not ctx.resilient_parsing:
            raise unknown_command(args, names, ctx.info_name or "")
        return super().resolve_command(ctx, args)


class Process(Enum):
    """Where a command runs: in a process of the command server, or always in the process that was typed."""

    SERVED = "served"
    DIRECT = "direct"
    """It supervises processes, or needs a terminal of its own."""
    DIRECT_AT_TERMINAL = "direct at a terminal"
    """At a terminal it may ask, page, or start a program of the person."""


class Heading(Enum):
    """A part of ``liza help --all``, in this order."""

    START = "Start and stop a crew"
    LOOK = "See what happens"
    STEER = "Tasks: add, answer, change"
    MERGES = "Merge, land, push"
    AGENTS = "What agents call"
    BOARD = "Board, settings, disk"


class Position(NamedTuple):
    """Where ``liza help --all`` lists a command. ``number``: its position below the heading."""

    heading: Heading
    number: int


JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON; errors as JSON on stderr.")]
CommandFunction = TypeVar("CommandFunction", bound=Callable[..., Any])


def create_app(help_text: str = "") -> typer.Typer:
    """Return an empty set of commands with the common settings."""
    return typer.Typer(cls=CommandParts, help=help_text or None, **TYPER_SETTINGS)


def declare_command(
    app: typer.Typer,
    name: str,
    example: str,
    *,
    position: Position | None = None,
    process: Process = Process.SERVED,
    in_sessions: bool = False,
    direct_options: tuple[str, ...] = (),
    **settings: Any,
) -> Callable[[CommandFunction], CommandFunction]:
    """Declare a command. Its docstring is its help; the example is appended.

    ``direct_options``: with one of them it runs in the process that was typed.
    ``in_sessions``: the command is answered when a process in the box of a session calls it. It runs outside of the
    box, so it must start no program and open no path that the caller names.
    """

    def declare(function: CommandFunction) -> CommandFunction:
        text = inspect.cleandoc(function.__doc__ or "")
        example_text = "\n".join(f"  {line}" for line in example.splitlines())
        help_text = f"{text}\n\n\b\nExample:\n{example_text}"
        vars(function).update(process=process, position=position, in_sessions=in_sessions)
        vars(function).update(direct_options=direct_options)
        app.command(name, help=help_text, short_help=_short_help(text), **settings)(function)
        return function

    return declare


def declare_group(
    app: typer.Typer,
    example: str,
    *,
    position: Position,
    process: Process = Process.SERVED,
    in_sessions: bool = False,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declare what a set of commands does without one of them. Its docstring is its help; the example is appended.

    ``process`` and ``in_sessions`` as for a command.
    """

    def declare(function: Callable[..., None]) -> Callable[..., None]:
        text = inspect.cleandoc(function.__doc__ or "")
        help_text = f"{text}\n\n\b\nExample:\n  {example}"
        vars(function).update(process=process, position=position, in_sessions=in_sessions)
        app.callback(invoke_without_command=True, help=help_text, short_help=_short_help(text))(function)
        return function

    return declare


def _short_help(text: str) -> str:
    """Return the first sentence; if it is longer than a line, only as many of its parts as fit."""
    sentence = re.split(r"[.;:](?:\s|$)", text, maxsplit=1)[0]
    while len(sentence) > SHORT_HELP and ", " in sentence:
        sentence = sentence.rpartition(", ")[0]
    return sentence


_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_duration(text: str, example: str) -> int:
    """Return the seconds of ``90``, ``90s``, ``15m``, ``2h``. Raises UsageError with the hint ``example``."""
    match = re.fullmatch(r"([0-9]{1,9})([smhd]?)", text.strip())
    if not match:
        raise UsageError(f"{text!r} is not a duration: expected a number and s, m, h or d, such as 15m", example)
    return int(match.group(1)) * _UNITS[match.group(2)]


def split_names(text: str | None) -> tuple[str, ...] | None:
    """Return the names in ``a,b``; None for None, and an empty tuple for an empty text."""
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def parse_details(pairs: Sequence[str]) -> dict[str, str]:
    """Return ``k=v`` pairs as a mapping. Raises UsageError."""
    details: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{pair!r} is not a detail: expected key=value", "liza report --help")
        details[key.strip()] = value
    return details


def refuse_path_of_session(path: Path | str, instead: str, hint: str) -> None:
    """Raise UsageError if a process in the box of a session named a path: this process would open it outside."""
    if is_called_from_box():
        raise UsageError(f"this command runs outside of your box, where {path} is not opened: {instead}", hint)


def read_text(name: str) -> str:
    """Return the text of a file, or of stdin for ``-``. Raises Missing, UsageError."""
    if name != "-":
        words = shlex.join("-" if word == name else word for word in sys.argv[1:])
        refuse_path_of_session(name, "use - and hand in the text on stdin", f"liza {words} < {shlex.quote(name)}")
    try:
        data = sys.stdin.buffer.read(MAX_BOARD_SIZE + 1) if name == "-" else Path(name).read_bytes()
        if name == "-" and len(data) > MAX_BOARD_SIZE:
            raise UsageError(f"stdin has more than {MAX_BOARD_SIZE >> 20} MB", "liza --help")
        return data.decode()
    except FileNotFoundError:
        raise Missing(f"file not found: {name}", "liza task add --help") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 text: {error.reason} at byte {error.start}", "file " + name) from None
    except OSError as error:
        raise Missing(f"{name} cannot be read: {error.strerror}", f"ls -l {name}") from None
