"""What Liza knows about the programs that commands name: data of ``guards.toml``, section ``shell``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from liza.rules.guards.word_matching import match_glob


class ShellTable:
    """The section ``shell``.

    ``shells`` run a script given by ``-c``, a file, or stdin. ``wrappers`` run a command that follows their options;
    ``values`` are options with a separate value, ``skip`` is the number of arguments before the command,
    ``asks`` are options with which nothing is run. ``code``:
    options of interpreters whose value is a program. ``scripts``: options whose value is a shell script. ``values``:
    options of other commands that have a separate value. ``writes``, ``modes``, ``copies``, ``in_place`` and
    ``output_options`` tell which arguments are paths that are written; ``directories``: options that name the directory
    where a program works; ``requests``: the options of HTTP clients that decide the method.
    ``setup`` are commands whose output may be evaluated. ``environments``: commands that install into an environment,
    by their first three words, and the options that name it. ``hook_skips``: variables with the values that make
    managers of git hooks run none.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.shells: Sequence[str] = data.get("shells", ())
        self.wrappers: Mapping[str, Mapping[str, Any]] = data.get("wrappers", {})
        self.code: Mapping[str, Sequence[str]] = data.get("code", {})
        self.scripts: Mapping[str, Sequence[str]] = data.get("scripts", {})
        self.values: Mapping[str, Sequence[str]] = data.get("values", {})
        self.writes: Sequence[str] = data.get("writes", ())
        self.modes: Sequence[str] = data.get("modes", ())
        self.removes: Sequence[str] = data.get("removes", ())
        self.copies: Sequence[str] = data.get("copies", ())
        self.reads: Sequence[str] = data.get("reads", ())
        self.in_place: Mapping[str, Sequence[str]] = data.get("in_place", {})
        self.output_options: Mapping[str, Sequence[str]] = data.get("output_options", {})
        self.requests: Mapping[str, Mapping[str, Any]] = data.get("requests", {})
        self.directories: Mapping[str, Sequence[str]] = data.get("directories", {})
        self.setup: Sequence[str] = data.get("setup", ())
        self.environments: Mapping[str, Sequence[str]] = data.get("environments", {})
        self.hook_skips: Sequence[str] = data.get("hook_skips", ())

    def code_options(self, program: str) -> Sequence[str] | None:
        """Return the options of an interpreter whose value is a program; None if it is no interpreter."""
        for pattern, options in self.code.items():
            if match_glob(pattern, program):
                return options
        return None


def program_name(word: str) -> str:
    """Return the name of a program, without its directory."""
    return word.rpartition("/")[2]


def option_values(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return the values of options: ``-o x``, ``-ox``, ``--out x``, ``--out=x``, and ``-xo x`` in a group."""
    values: list[str] = []
    for index, word in enumerate(words):
        follower = words[index + 1 : index + 2]
        for option in options:
            if word == option:
                values += follower
            elif option.startswith("--"):
                if word.startswith(option + "="):
                    values.append(word[len(option) + 1 :])
            elif word.startswith(option) and len(option) == 2:
                values.append(word[2:])
            elif len(option) == 2 and _ends_group(word, option[1]):
                values += follower
    return values


def abbreviations(option: str) -> tuple[str, ...]:
    """Return a long option and what GNU programs accept for it: its beginnings, here those of two letters or more."""
    return tuple(option[:end] for end in range(len("--xx"), len(option) + 1))


def _ends_group(word: str, letter: str) -> bool:
    return word[:1] == "-" and word[:2] != "--" and word.endswith(letter) and word[1:].isalpha() and len(word) > 2


def positionals(words: Sequence[str], with_value: Sequence[str] = ()) -> list[str]:
    """Return the words that are neither options nor values of the options ``with_value``; all words behind ``--``."""
    return split_options(words, with_value)[1]


def split_options(words: Sequence[str], with_value: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the options and the positional words; the values of the options ``with_value`` are in neither list."""
    options: list[str] = []
    arguments: list[str] = []
    skip = False
    for index, word in enumerate(words):
        if skip:
            skip = False
        elif word == "--":
            return options, [*arguments, *words[index + 1 :]]
        elif word[:1] == "-" and len(word) > 1:
            skip = word in with_value or any(_ends_group(word, option[1]) for option in with_value if len(option) == 2)
            options.append(word)
        else:
            arguments.append(word)
    return options, arguments


def split_wrapper(words: Sequence[str], row: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the assignments and the command behind the options of a wrapper such as ``env -u X A=1 git push``."""
    index, skip, assignments = 1, int(row.get("skip", 0)), []
    values = row.get("values", ())
    while index < len(words):
        word = words[index]
        if word == "--":
            index += 1
            break
        if word[:1] == "-" and len(word) > 1:
            index += 2 if word in values else 1
        elif "=" in word and word.partition("=")[0].isidentifier() and row.get("assignments"):
            assignments.append(word)
            index += 1
        elif skip:
            skip -= 1
            index += 1
        else:
            break
    while (
        row.get("assignments")
        and index < len(words)
        and words[index].partition("=")[0].isidentifier()
        and "=" in words[index]
    ):
        assignments.append(words[index])
        index += 1
    return assignments, list(
        words[index + skip if skip and index < len(words) and words[index - 1] == "--" else index :]
    )
