"""The `liza init` commands in hints, completed with what the person typed. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from liza.project.rules import project_kinds
from liza.project.rules.project_kinds import Project

INIT = 'liza init "…"'
_COMMAND = re.compile(r'liza init "…"(?P<words>[^;]*)')
_INIT_COMMAND = re.compile(r'liza init "[^"]*"(?P<words>.*)')
_ALTERNATIVE = re.compile(r"[;,] or\b")


def setup_hint(example: str = "make deps", test: str = "") -> str:
    """Return the hint to name a set-up, such as ``example``, for a project of which none is known.

    ``test``: the option of the tests.
    """
    return f"{INIT}{test} --setup {quote_option(example)}"


def suggest_init_command(project: Project, command: str, example: str = "make deps") -> str:
    """Suggest an init command that creates an environment in each worktree, and tests that use it.

    If no set-up is known for this kind of project, the person has to name it, such as ``example``; the tests are then
    ``command``.
    """
    commands_in_worktree = project_kinds.worktree_commands(project, command)
    if commands_in_worktree is None:
        return setup_hint(example, f" --test {quote_option(command)}")
    setup, test = commands_in_worktree
    return f'liza init "…" --setup {quote_option(setup)} --test {quote_option(test)}'


def quote_option(text: str) -> str:
    """Return the text as one word of a command line, in double quotes where that is possible."""
    return f'"{text}"' if not set('"$`\\!') & set(text) else shlex.quote(text)


def join_commands(hints: Sequence[str]) -> str:
    """Return one command for several hints, in their order: of each its first alternative, and one `liza init` at the
    end with the options of all.
    """
    commands: list[str] = []
    options: list[str] = []
    for hint in hints:
        for command in _ALTERNATIVE.split(hint)[0].split(" && "):
            if match := _INIT_COMMAND.fullmatch(command):
                options.append(match["words"])
            elif command and command not in commands:
                commands.append(command)
    return " && ".join([*commands, *([INIT + "".join(options)] if options else [])])


def complete_init_commands(hint: str, goal: str | None, options: Sequence[tuple[str, ...]]) -> str:
    """Return the hint with the goal and the options in each `liza init "…"`.

    Options that the hint itself names are left out. Without a goal and a ``--spec``, the place of the goal stays.
    """
    subject = [shlex.quote(goal)] if goal else [] if any(option[0] == "--spec" for option in options) else ['"…"']

    def complete(match: re.Match[str]) -> str:
        named = set(match["words"].split())
        typed = [shlex.join(option) for option in options if option[0] not in named]
        return " ".join(["liza init", *subject, *typed]) + match["words"]

    return _COMMAND.sub(complete, hint)
