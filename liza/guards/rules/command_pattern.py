"""Patterns for commands, as guard rules write them, and how a command is compared with them.

A pattern is a list of words. The first is the program; the others are compared with the arguments that are no options,
in their order, as far as the pattern goes. A word that begins with ``-`` is an option that the command has anywhere;
``-X=GET`` is one with this value; ``@`` begins a word that Liza adds, such as ``@-c=…``, an option of git before its
subcommand. ``a|b`` are alternatives, ``*`` and ``?`` wildcards. ``$`` at the end: there are no further arguments.
``<branch>`` is the branch of the session's task, ``<commit>`` a commit by its id or by HEAD.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

from liza.guards.rules.acts import MARK

BRANCH, COMMIT, END = "<branch>", "<commit>", "$"
_COMMIT_ID = re.compile(r"(?:[0-9a-f]{7,40}|(?:ORIG_|FETCH_|MERGE_)?HEAD|@(?!\{-))(?:[~^@].*)?")
_GROUP = re.compile(r"-[^\W_]+")


class CommandPattern:
    """A pattern, split into its words."""

    __slots__ = ("arguments", "has_end", "marks", "options")

    def __init__(self, text: str) -> None:
        words = text.split()[1:]
        self.has_end = words[-1:] == [END]
        alternatives = [tuple(word.split("|")) for word in (words[:-1] if self.has_end else words)]
        self.marks = [[MARK + each[1:] for each in word] for word in alternatives if word[0][:1] == "@"]
        self.options = [word for word in alternatives if word[0][:1] == "-"]
        self.arguments = [word for word in alternatives if word[0][:1] not in ("@", "-")]


class Command:
    """A command, split for the comparison with many patterns. ``values`` are the options with a separate value."""

    __slots__ = ("arguments", "branch", "marks", "options")

    def __init__(self, words: Sequence[str], values: Mapping[str, Sequence[str]], branch: str = "") -> None:
        self.marks = [word for word in words[1:] if word[:1] == MARK]
        rest = [word for word in words[1:] if word[:1] != MARK]
        with_value = (*values.get(words[0], ()), *values.get(" ".join((words[0], *rest[:1])), ()))
        self.options, self.arguments = split_options(rest, with_value)
        self.branch = branch


def match_command(pattern: CommandPattern, command: Command) -> bool:
    """Return whether a command of the pattern's program matches."""
    count, wanted = len(command.arguments), len(pattern.arguments)
    if count < wanted or (pattern.has_end and count > wanted):
        return False
    for alternatives, word in zip(pattern.arguments, command.arguments, strict=False):
        if not any(_match_argument(each, word, command.branch) for each in alternatives):
            return False
    marks = (any(match_glob(each, word) for each in row for word in command.marks) for row in pattern.marks)
    options = (any(_is_option(each, *pair) for each in row for pair in command.options) for row in pattern.options)
    return all(marks) and all(options)


def _match_argument(pattern: str, word: str, branch: str) -> bool:
    is_commit = pattern == COMMIT and _COMMIT_ID.fullmatch(word) is not None
    return is_commit or (word == branch != "" if pattern == BRANCH else match_glob(pattern, word))


def _is_option(option: str, name: str, value: str = "") -> bool:
    """Compare an option, which may be shortened, and its value if the pattern has one."""
    wanted, equals, glob = option.partition("=")
    is_same = name == wanted or (len(name) > 4 and name[:2] == "--" and wanted.startswith(name))
    return is_same and (not equals or match_glob(glob, value))


def split_options(words: Sequence[str], with_value: Collection[str] = ()) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the options with their values, and the other words; a group of options also as a whole. ``with_value``:
    those with a separate value, as in ``-o x``, ``-ox``, ``--out x``, and ``-xo x``; ``-u*`` has only a joined one."""
    options: list[tuple[str, str]] = []
    arguments: list[str] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if word == "--":
            return [*options, (word, "")], [*arguments, *rest]
        if word[:1] != "-" or len(word) == 1:
            arguments.append(word)
        elif word[:2] == "--" or word in with_value:
            takes = not equals and any(_is_option(each, name) for each in with_value)
            options.append((name, next(rest, "") if takes else value))
        else:
            options.append((name, value))
            group = _GROUP.match(word)
            for at in range(1, group.end() if group else 2):
                letter, value = f"-{word[at]}", word[at + 1 :]
                has_value = letter in with_value
                options.append((letter, (value or next(rest, "")) if has_value else value))
                if has_value or f"{letter}*" in with_value:
                    break
    return options, arguments


def values_of(words: Sequence[str], options: Collection[str], with_value: Collection[str] = ()) -> list[str]:
    """Return the values of options; ``with_value`` are others that have one."""
    pairs = split_options(words, (*options, *with_value))[0]
    return [value for name, value in pairs if any(_is_option(option, name) for option in options)]


def match_glob(pattern: str, word: str) -> bool:
    """Return whether the word matches ``*`` and ``?``."""
    if "*" in pattern or "?" in pattern:
        return _compile(pattern).fullmatch(word) is not None
    return pattern == word


@lru_cache(maxsize=4096)
def _compile(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a pattern. Nothing is tried twice, so no pattern is slow."""
    first, *parts = (re.escape(part).replace(r"\?", ".") for part in re.split(r"\*+", pattern))
    between = "".join(f"(?>.*?{part})" for part in parts[:-1])
    return re.compile(f"{first}{between}" + (f".*{parts[-1]}" if parts else ""), re.DOTALL)
