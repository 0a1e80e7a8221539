"""What the modules of commands share: how a command is declared, and how its words are read."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from liza.rules.errors import Missing, UsageError

TYPER_SETTINGS: Final[dict[str, Any]] = {
    "add_completion": False,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 110},
}

JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON; errors too, on stderr.")]
CommandFunction = TypeVar("CommandFunction", bound=Callable[..., Any])


def create_app(help_text: str = "") -> typer.Typer:
    """An empty set of commands, as every module here makes it."""
    return typer.Typer(help=help_text or None, **TYPER_SETTINGS)


def declare_command(
    app: typer.Typer, name: str, example: str, *, hidden: bool = False, **settings: Any
) -> Callable[[CommandFunction], CommandFunction]:
    """Declare a command: its docstring is its help, with the example at the end."""

    def declare(function: CommandFunction) -> CommandFunction:
        text = inspect.cleandoc(function.__doc__ or "")
        shown = "\n".join(f"  {line}" for line in example.splitlines())
        short = re.split(r"[.;:](?:\s|$)", text, maxsplit=1)[0]
        whole = f"{text}\n\n\b\nExample:\n{shown}"
        app.command(name, help=whole, short_help=short, hidden=hidden, **settings)(function)
        return function

    return declare


_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_duration(text: str, example: str) -> int:
    """Seconds in ``90``, ``90s``, ``15m``, ``2h``. Raises Usage; ``example`` is the command as it is typed."""
    found = re.fullmatch(r"([0-9]{1,9})([smhd]?)", text.strip())
    if not found:
        raise UsageError(f"{text!r} is no duration: a number and s, m, h or d, such as 15m", example)
    return int(found.group(1)) * _UNITS[found.group(2)]


def split_names(text: str | None) -> tuple[str, ...] | None:
    """The words of ``a,b``; None where nothing was said, and nothing in the empty text."""
    return None if text is None else tuple(word.strip() for word in text.split(",") if word.strip())


def parse_details(pairs: Sequence[str]) -> dict[str, str]:
    """``k=v`` pairs as a mapping. Raises Usage."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{pair!r} is no detail: key=value", "liza report KIND TEXT --detail count=3")
        found[key.strip()] = value
    return found


def read_text(name: str) -> str:
    """The text of a file, or of stdin for ``-``. Raises Missing, Usage."""
    try:
        return (sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()).decode()
    except FileNotFoundError:
        raise Missing(f"there is no file {name}", "liza task add --help") from None
    except UnicodeDecodeError as wrong:
        raise UsageError(f"{name} is not UTF-8 text: {wrong.reason} at byte {wrong.start}", "file " + name) from None
    except OSError as wrong:
        raise Missing(f"{name} cannot be read: {wrong.strerror}", f"ls -l {name}") from None
