"""What a tool does, and the facts about the session that it is judged with."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache

from liza.model.value_classes import Value, field

SHELL, READ, WRITE, FETCH, OTHER = "shell", "read", "write", "fetch", "other"
OWN, CREW, ELSEWHERE, UNKNOWN = "own", "crew", "elsewhere", "unknown"
AREAS = (OWN, CREW, ELSEWHERE, UNKNOWN)
"""Where a command runs: in the session's worktree, in another part of the repository, outside of it, or unknown."""
MARK = "\uf8f5"  # begins a word that Liza adds to a command, and is removed from words of agents; ``@`` in patterns


class CannotJudge(Exception):
    """The tool cannot be judged: its script cannot be parsed, or is too large. The text is the reason."""


class ShellCommand(Value):
    """A command of a script, its words as they are written, without quotes. ``assignments``: ``NAME=VALUE`` before it.
    ``outputs``: files that redirections write. ``scope``: the subshells around it. ``is_fed``: it reads a pipe or a
    here-document."""

    words: tuple[str, ...] = ()
    assignments: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    scope: tuple[int, ...] = ()
    is_fed: bool = False


class Act(Value):
    """One thing that a tool of the vocabulary does. ``words``: the command, for a shell, and ``area`` where it runs;
    ``target``: the absolute path, or the address. ``is_tree``: what is below the path is removed or moved with it."""

    tool: str
    words: tuple[str, ...] = ()
    target: str = ""
    is_tree: bool = False
    area: str = OWN

    @property
    def text(self) -> str:
        """The act as a short text for people."""
        text = " ".join(word for word in self.words if word[:1] != MARK) or f"{self.tool} {self.target}"
        return text if len(text) <= 200 else text[:199] + "…"


class GuardFacts(Value):
    """The session for which a tool is judged. Paths are absolute and contain no links; empty if unknown.

    ``directory`` is where the tool starts, ``state`` where Liza keeps the state of the user. ``variables`` are those of
    the session that a path may name. ``real`` resolves links, ``exists`` tells whether a path exists.
    """

    role: str = ""
    branch: str = ""
    root: str = ""
    slots: str = ""
    worktree: str = ""
    home: str = ""
    state: str = ""
    directory: str = ""
    is_confined: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    real: Callable[[str], str] = str
    exists: Callable[[str], bool] = lambda path: False

    def area_of(self, path: str) -> str:
        """Return which area a directory is in."""
        if not path:
            return UNKNOWN
        path = self.real(path)
        if self.worktree and is_below(path, self.worktree):
            return OWN
        return CREW if any(top and is_below(path, top) for top in (self.root, self.slots)) else ELSEWHERE

    def join(self, directory: str, path: str) -> str:
        """Return ``path`` seen from ``directory``, without ``~``, ``.`` and ``..``."""
        if self.home and (path == "~" or path.startswith("~/")):
            path = self.home + path[1:]
        parts: list[str] = []
        for part in (path if path.startswith("/") else f"{directory}/{path}").split("/"):
            if part == "..":
                del parts[-1:]
            elif part not in ("", "."):
                parts.append(part)
        return "/" + "/".join(parts)


def is_below(path: str, top: str) -> bool:
    """Return whether ``path`` is ``top`` or inside it."""
    return path == top or path.startswith(top.rstrip("/") + "/")


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
