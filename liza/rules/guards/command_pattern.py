"""Patterns for commands, as guard rules write them, and how a command is compared with them.

A pattern is a list of words. The first is the program; the others are compared with the arguments that are no options,
in their order, as far as the pattern goes. A word that begins with ``-`` is an option that the command has anywhere;
``@-c=…`` is an option of git before its subcommand. ``a|b`` are alternatives, ``*`` and ``?`` wildcards. ``$`` at the
end: there are no further arguments. ``<branch>`` is the branch of the session's task, ``<commit>`` a commit by its id
or by HEAD.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from liza.rules.guards.shell_table import split_options
from liza.rules.guards.word_matching import MANY, MARK, MAYBE, NO, YES, is_known, is_unknown, match_any, match_glob

MAX_PATTERN = 1000  # characters
BRANCH, COMMIT, END = "<branch>", "<commit>", "$"


class CommandPattern:
    """A pattern, split into its words."""

    __slots__ = ("arguments", "has_end", "is_general", "marked", "options", "program")

    def __init__(self, text: str) -> None:
        words = text.split()
        self.has_end = words[-1:] == [END]
        if self.has_end:
            words.pop()
        self.program = tuple(words[0].split("|")) if words else ()
        rest = [tuple(word.split("|")) for word in words[1:]]
        self.marked = [tuple(MARK + each[1:] for each in word) for word in rest if word[0][:1] == "@"]
        self.options = [word for word in rest if word[0][:1] == "-"]
        self.arguments = [word for word in rest if word[0][:1] not in ("@", "-")]
        # It names no argument, so it concerns neither an unknown program nor the text of another language.
        self.is_general = not self.marked and not self.options and all(word == ("*",) for word in self.arguments)


class Command:
    """A command, split for the comparison with many patterns."""

    __slots__ = (
        "arguments",
        "branch",
        "has_unknown",
        "is_code",
        "letters",
        "marked",
        "options",
        "program",
        "separated",
    )

    def __init__(
        self, words: Sequence[str], with_value: Mapping[str, Sequence[str]], branch: str = "", is_code: bool = False
    ) -> None:
        self.program = words[0]
        self.marked = [word for word in words[1:] if word[:1] == MARK]
        rest = [word for word in words[1:] if word[:1] != MARK]
        key = f"{self.program} {rest[0]}" if rest else self.program
        options = (*with_value.get(self.program, ()), *with_value.get(key, ()))
        self.separated = "--" in rest
        before = rest[: rest.index("--")] if self.separated else rest
        self.options, arguments = split_options(before, options)
        self.arguments = [*arguments, *rest[len(before) + 1 :]]
        # A word of which nothing is known may be an option, an argument, or several of them. In quotes it is one word.
        self.has_unknown = any(is_unknown(word) for word in (*self.options, *arguments)) or any(
            is_unknown(word) and MANY in word for word in before
        )
        # Behind one of these letters a group of options is its value.
        self.letters = "".join(option[1] for option in options if len(option.rstrip("*")) == 2)
        if MANY in self.program and not self.arguments:
            # ``$x -f`` may be a program with arguments; ``$PYTHON -m pytest`` is taken for one word.
            self.has_unknown = True
        self.branch, self.is_code = branch, is_code


def match_command(pattern: CommandPattern, command: Command) -> int:
    """Return whether the command matches: YES, NO, or MAYBE if that depends on words that are not known."""
    if pattern.is_general and (command.is_code or not is_known(command.program)):
        return NO
    result = match_any(pattern.program, command.program)
    if result == NO:
        return NO
    for alternatives in pattern.marked:
        result = min(result, max((match_any(alternatives, word) for word in command.marked), default=NO))
    for alternatives in pattern.options:
        result = min(result, _match_option(alternatives, command))
    return min(result, _match_arguments(pattern, command)) if result else NO


def _match_arguments(pattern: CommandPattern, command: Command) -> int:
    result = YES
    for index, alternatives in enumerate(pattern.arguments):
        if index >= len(command.arguments):
            return MAYBE if command.has_unknown else NO
        word = command.arguments[index]
        if is_unknown(word):
            return min(result, YES if alternatives == ("*",) and index == len(pattern.arguments) - 1 else MAYBE)
        result = min(result, max(_match_argument(each, word, command) for each in alternatives))
        if result == NO:
            return NO
    if pattern.has_end:
        if command.has_unknown:
            return MAYBE
        return result if len(command.arguments) == len(pattern.arguments) else NO
    return result


def _match_argument(pattern: str, word: str, command: Command) -> int:
    if pattern == BRANCH:
        return YES if command.branch and word == command.branch else NO
    if pattern == COMMIT:
        return YES if is_known(word) and _is_commit(word) else NO
    return match_glob(pattern, word)


def _is_commit(word: str) -> bool:
    start = word
    for mark in "~^@":
        start = start.partition(mark)[0]
    is_id = 7 <= len(start) <= 40 and all(character in "0123456789abcdef" for character in start)
    # ``@{-1}`` is the branch before, and git switches to it.
    is_head = word[:1] == "@" and word[:3] != "@{-"
    return is_id or start in ("HEAD", "ORIG_HEAD", "FETCH_HEAD", "MERGE_HEAD") or is_head


def _match_option(alternatives: Collection[str], command: Command) -> int:
    """Compare an option with those of the command, which may be shortened, grouped, or joined with a value."""
    if "--" in alternatives and command.separated:
        return YES
    for word in command.options:
        if any(_is_option(option, word, command.letters) for option in alternatives):
            return YES
    return MAYBE if command.has_unknown else NO


def _is_option(option: str, word: str, letters: str) -> bool:
    if "=" in option:
        return match_glob(option, word) == YES
    name = word.partition("=")[0]
    if option[:2] == "--":
        return name == option or (len(name) > 4 and name[:2] == "--" and option.startswith(name))
    if word[:2] == "--" or len(option) != 2:
        return name == option
    # A group of options ends where a value begins: ``-C/home`` does not have the option ``-h``.
    end = next((at for at, character in enumerate(word) if at and not character.isalnum()), len(word))
    end = next((at + 1 for at, character in enumerate(word[:end]) if at and character in letters), end)
    return option[1] in word[1:end] or word[1:2] == option[1]
