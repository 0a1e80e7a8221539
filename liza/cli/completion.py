"""Shell completion: what bash, zsh and fish ask, and how they are answered.

typer has the protocol, and finds the parameter that is being typed; `completion_values.py` has its values. This module
replaces what typer lacks: values that contain ``=`` or ``:`` in bash, no file names where no file fits, and no error.
It uses names that typer keeps to itself, which all versions that `pyproject.toml` allows have.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from typer import _completion_classes as classes
from typer import _completion_shared as scripts

from liza.cli import completion_values as values
from liza.cli.app import find_command

_BASH: Final = """\
%(complete_func)s() {
    local answer
    mapfile -t answer < <(env COMP_LINE="$COMP_LINE" COMP_POINT="$COMP_POINT" \\
        COMP_WORDBREAKS="$COMP_WORDBREAKS" %(autocomplete_var)s=complete_bash "${1/#\\~/$HOME}" 2>/dev/null)
    [ -z "${answer[0]}" ] || compopt -o "${answer[0]}"
    COMPREPLY=("${answer[@]:1}")
}

complete -F %(complete_func)s %(prog_name)s
"""
"""The first line of the answer is an option of ``compopt``: ``default`` offers files, ``nospace`` adds no space."""
_BASE: Any = classes.BashComplete.__mro__[1]
_PROTOCOL: Any = sys.modules[_BASE.__module__]
_FILE: Final = "file"
"""Type of the item that asks the shell for file names."""


def register() -> None:
    """Let the shells be answered by the classes of this module."""
    scripts._completion_scripts["bash"] = _BASH  # type: ignore[attr-defined, unused-ignore]
    for name, kind in (("bash", Bash), ("zsh", Zsh), ("fish", Fish)):
        _PROTOCOL.add_completion_class(kind, name)


def _complete_parameter(path: str, words: Sequence[str], parameter: Any, ctx: Any, incomplete: str) -> list[Any]:
    """Return the values of a parameter: those of Liza, file names for a path, or what typer knows."""
    names = path, parameter.name
    complete = values.BY_COMMAND.get(names) or values.BY_NAME.get(parameter.name)
    if names in values.FILES or parameter.type.name in ("path", "file"):
        return [_PROTOCOL.CompletionItem(incomplete, type=_FILE)]
    if complete is None:
        return list(parameter.type.shell_complete(ctx, parameter, incomplete))
    given = ctx.params.get(parameter.name) if parameter.param_type_name == "argument" else None
    before = given if isinstance(given, list | tuple) else _find_words(path, words)
    rows = complete(values.Typed(incomplete, tuple(before)))
    return [_PROTOCOL.CompletionItem(row.value, help=row.help) for row in rows if row.value.startswith(incomplete)]


def _find_words(path: str, words: Sequence[str]) -> list[str]:
    return [word for word in words[len(path.split()) :] if not word.startswith("-")]


class _Answer(_BASE):  # type: ignore[misc]
    """Find the items for the typed words. It raises no error: the shell would print it into the command line."""

    def get_completions(self, args: list[str], incomplete: str) -> list[Any]:
        try:
            path, command = find_command(args)
            if command is None and args and not args[0].startswith("-"):
                return []
            for parameter in getattr(command, "params", ()):
                if not getattr(parameter, "is_flag", False):
                    parameter.shell_complete = partial(_complete_parameter, path, args, parameter)
            return list(super().get_completions(args, incomplete))
        except Exception:  # noqa: BLE001 - after any error the shell offers nothing
            return []

    def find(self) -> tuple[list[Any], bool]:
        """Return the items, and whether file names fit instead."""
        items = self.get_completions(*self.get_completion_args())
        return [item for item in items if item.type != _FILE], any(item.type == _FILE for item in items)


class Bash(_Answer, classes.BashComplete):
    """bash replaces only what follows the last ``=``, ``:`` or other character of COMP_WORDBREAKS."""

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get("COMP_LINE")
        if line is None:  # The script that a version before 0.3 installed.
            args, incomplete = super().get_completion_args()
            return args, incomplete
        typed = line.encode()[: int(os.environ["COMP_POINT"])].decode(errors="ignore")
        words = _PROTOCOL.split_arg_string(typed)
        incomplete = words.pop() if words and not typed.endswith((" ", "\t")) else ""
        return words[1:], incomplete

    def complete(self) -> str:
        items, has_files = self.find()
        lines = [item.value for item in items]
        if "COMP_LINE" not in os.environ:
            return "\n".join(lines)
        _, incomplete = self.get_completion_args()
        start = incomplete.partition("=")[2] if incomplete.startswith("--") else incomplete
        breaks = os.environ.get("COMP_WORDBREAKS", "=:")
        kept = max((index + 1 for index, letter in enumerate(start) if letter in breaks), default=0)
        has_more = len(lines) == 1 and lines[0].endswith(("=", ":", ","))
        option = "default" if has_files else "nospace" if has_more else ""
        return "\n".join([option, *(line[kept:] for line in lines)])


class Zsh(_Answer, classes.ZshComplete):
    """zsh is answered with a command that it runs."""

    def complete(self) -> str:
        items, has_files = self.find()
        if has_files:
            return "_files"
        if any(item.value.endswith(("=", ":")) for item in items):
            return "compadd -S '' -- " + " ".join(f"'{item.value}'" for item in items)
        rows = "\n".join(self.format_completion(item) for item in items)
        return f"_arguments '*: :(({rows}))'" if rows else ""


class Fish(_Answer, classes.FishComplete):
    """fish asks first whether file names fit."""

    def complete(self) -> str:
        items, has_files = self.find()
        if os.environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
            sys.exit(int(has_files))
        return "\n".join(self.format_completion(item) for item in items)
