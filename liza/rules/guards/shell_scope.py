"""Variables, functions and the directory while a script is walked, and the expansion of its words.

A variable may have several values: those that the script assigns to it anywhere before. One that the script does not
assign, and the session's facts do not have, is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from liza.rules.guards.acts import GuardFacts, join_path
from liza.rules.guards.shell_syntax import ShellNode, Word, WordPart
from liza.rules.guards.word_matching import ANY, FILES, MANY, is_known

MAX_VALUES = 8  # of a variable
MAX_VALUE = 1 << 16  # characters of a variable; a longer value is unknown
MAX_COMBINATIONS = 16  # of the values of the variables of a command
MAX_TEXT = 1 << 20  # characters of a word
SEPARATOR = "\uf8f2"
"""Between the words of ``"$@"``."""


class Scope:
    """What is known at one point of a script. ``arguments`` are those of a function; None if they are unknown."""

    def __init__(self, facts: GuardFacts) -> None:
        self.facts = facts
        self.directory = facts.directory
        self.previous = ""
        self.variables: dict[str, tuple[str, ...]] = {name: (value,) for name, value in facts.variables.items()}
        self.functions: dict[str, ShellNode] = {}
        self.aliases: dict[str, str] = {}
        self.arguments: tuple[str, ...] | None = None

    def copy(self) -> Scope:
        """Return a scope for a subshell: what is changed there is not changed here."""
        other = Scope.__new__(Scope)
        other.__dict__ = {**self.__dict__, "variables": dict(self.variables), "functions": dict(self.functions)}
        other.aliases = dict(self.aliases)
        return other

    def assign(self, name: str, values: Sequence[str]) -> None:
        """Add values of a variable. The earlier ones stay, because the assignment may not run."""
        values = [value if len(value) <= MAX_VALUE else MANY for value in values]
        all_values = dict.fromkeys((*self.variables.get(name, ()), *values))
        self.variables[name] = tuple(all_values) if len(all_values) <= MAX_VALUES else (MANY,)

    def change_directory(self, path: str) -> None:
        """Carry out ``cd``."""
        before = self.directory
        if path == "-":
            self.directory = self.previous
        elif not is_known(path):
            self.directory = ""
        elif path.startswith("/") or self.directory:
            self.directory = join_path(self.directory, path)
        self.previous = before

    def resolve(self, path: str) -> str:
        """Return the absolute path; one that begins with ANY if the directory is unknown."""
        return join_path(self.directory, path)

    def values_of(self, name: str) -> tuple[str, ...]:
        """Return the possible values of a variable or positional parameter; SEPARATOR is between words of ``$@``."""
        if name == "PWD":
            return (self.directory or ANY,)
        if name == "HOME" and self.facts.home and name not in self.variables:
            return (self.facts.home,)
        if name in ("@", "*"):
            return (MANY if self.arguments is None else SEPARATOR.join(self.arguments),)
        if name.isdecimal():
            if self.arguments is None or name == "0":
                return (MANY,)
            index = int(name) - 1
            return (self.arguments[index] if index < len(self.arguments) else "",)
        if name == "IFS":
            return (" \t\n", *self.variables.get(name, ()))
        return self.variables.get(name, (MANY,))

    def separated(self, values: tuple[str, ...]) -> tuple[str, ...]:
        """Return values that are not quoted; if the script sets IFS, also with spaces in place of its characters."""
        marks = "".join(self.variables.get("IFS", ()))
        if not marks:
            return values
        spaced = ("".join(" " if character in marks else character for character in value) for value in values)
        return tuple(dict.fromkeys((*values, *spaced)))


def expand(word: Word, scope: Scope, output: Callable[[WordPart, Scope], str]) -> list[list[str]]:
    """Return what the word may become: for each combination of values, a list of words.

    ``output`` returns the output of a command substitution.
    """
    braces = _expand_braces(word)
    if braces is not None:
        return [braces]
    choices: list[list[tuple[str, bool]]] = []
    for index, part in enumerate(_without_classes(word)):
        if part.form == "text":
            text = part.value if part.quoted else _without_wildcards(part.value)
            if index == 0 and not part.quoted and text[:1] == "~":
                text = _expand_tilde(text, scope)
            # An unknown part of a script's text may become several words, unless it is quoted there.
            is_split = ANY in part.value and not part.quoted
            choices.append([(text.replace(ANY, MANY), False) if is_split else (text, True)])
        elif part.form == "variable":
            values = scope.values_of(part.value)
            choices.append([(value, part.quoted) for value in (values if part.quoted else scope.separated(values))])
        elif part.form == "output":
            values = (output(part, scope),)
            choices.append([(value, part.quoted) for value in (values if part.quoted else scope.separated(values))])
        elif part.form == "process":
            choices.append([("/dev/fd/" + ANY, True)])
        else:
            choices.append([(ANY if part.quoted else MANY, part.quoted)])
    combinations = 1
    for choice in choices:
        combinations *= len(choice)
    # Each variable may have twice the length of the one before.
    length = sum(max((len(text) for text, _ in choice), default=0) for choice in choices)
    if combinations > MAX_COMBINATIONS or length > MAX_TEXT:
        return [[MANY]]
    return [_split(combination) for combination in product(*choices)]


def _split(parts: Sequence[tuple[str, bool]]) -> list[str]:
    """Join the parts to words. What is not quoted is split at spaces, and disappears if it is empty."""
    words: list[str] = []
    current: str | None = "" if not parts else None
    for text, quoted in parts:
        if SEPARATOR in text:
            pieces = text.split(SEPARATOR)
        elif quoted:
            current = (current or "") + text.replace(MANY, ANY)
            continue
        else:
            pieces = text.split()
            if text[:1].isspace() and current is not None:
                words.append(current)
                current = None
        for index, piece in enumerate(pieces):
            if index and current is not None:
                words.append(current)
                current = None
            current = (current or "") + piece
        if pieces and SEPARATOR not in text and text[-1:].isspace() and current is not None:
            words.append(current)
            current = None
    return words if current is None else [*words, current]


def _without_classes(word: Word) -> Word:
    """Replace ``[…]``, which the shell expands to names of files. A part between the brackets may be quoted."""
    plain = [index for index, part in enumerate(word) if part.form == "text" and not part.quoted]
    first = next((index for index in plain if "[" in word[index].value), None)
    last = next((index for index in reversed(plain) if "]" in word[index].value), None)
    if first is None or last is None or last < first:
        return word
    before, _, inside = word[first].value.partition("[")
    behind = word[last].value.rpartition("]")[2]
    if last == first and "]" not in inside:
        return word
    return (*word[:first], WordPart("text", f"{before}{FILES}{behind}"), *word[last + 1 :])


def _without_wildcards(text: str) -> str:
    """Replace ``*`` and ``?``, which the shell expands to names of files."""
    return text.replace("*", FILES).replace("?", FILES)


def _expand_tilde(text: str, scope: Scope) -> str:
    name, slash, rest = text[1:].partition("/")
    if name == "+":
        return (scope.directory or ANY) + slash + rest
    if name == "" and scope.facts.home:
        return scope.facts.home + slash + rest
    return ANY + slash + rest


def _expand_braces(word: Word) -> list[str] | None:
    """Return the words of ``a{b,c}``; None without such braces. Unknown if a part is not plain text."""
    plain = "".join(part.value for part in word if part.form == "text" and not part.quoted)
    start = plain.find("{")
    if start < 0 or "}" not in plain[start:] or ("," not in plain[start:] and ".." not in plain[start:]):
        return None
    if any(part.form != "text" or part.quoted for part in word):
        return [MANY]
    words = _expand_brace_text(plain, 0)
    if words == [plain]:
        return None
    return [_without_wildcards(part.value) for text in words for part in _without_classes((WordPart("text", text),))]


def _expand_brace_text(text: str, depth: int) -> list[str]:
    start = text.find("{")
    if start < 0 or depth > 5:
        return [text] if depth <= 5 else [MANY]
    pieces, level, begin, end = [], 0, start + 1, -1
    for position in range(start, len(text)):
        character = text[position]
        if character == "{":
            level += 1
        elif character == "}":
            level -= 1
            if level == 0:
                end = position
                break
        elif character == "," and level == 1:
            pieces.append(text[begin:position])
            begin = position + 1
    if end < 0:
        return [text]
    pieces.append(text[begin:end])
    tails = _expand_brace_text(text[end + 1 :], depth + 1)
    if len(pieces) == 1:
        inner = (
            [ANY] if ".." in pieces[0] else ["{" + piece + "}" for piece in _expand_brace_text(pieces[0], depth + 1)]
        )
    else:
        inner = [piece for whole in pieces for piece in _expand_brace_text(whole, depth + 1)]
    if len(inner) * len(tails) > 64:
        return [MANY]
    return [text[:start] + piece + tail for piece in inner for tail in tails]
