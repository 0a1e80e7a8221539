"""The parts of a shell script that guards look at, as the parser found them. Nothing is expanded yet."""

from __future__ import annotations

from collections.abc import Sequence


class WordPart:
    """A part of a word. ``form``: text, variable, output (of a script) or unknown.

    ``quoted``: it stays one word, and its characters have no special meaning. ``value`` is the text, or the name of the
    variable; ``scripts`` are the scripts that run when the part is expanded.
    """

    __slots__ = ("form", "quoted", "scripts", "value")

    def __init__(self, form: str, value: str = "", quoted: bool = False, scripts: Sequence[ShellNode] = ()) -> None:
        self.form, self.value, self.quoted, self.scripts = form, value, quoted, scripts


Word = tuple[WordPart, ...]


class Redirect:
    """``operator`` is ``>``, ``>>``, ``<``, ``<<`` or the like; ``word`` the file, or the text of a here-document."""

    __slots__ = ("operator", "word")

    def __init__(self, operator: str, word: Word) -> None:
        self.operator, self.word = operator, word

    @property
    def is_text(self) -> bool:
        """Whether ``word`` is the input itself."""
        return self.operator in ("<<", "<<-", "<<<")


class ShellNode:
    """A piece of a script.

    ``form``: command (``words``, ``assignments``, ``redirects``), sequence, subshell, pipeline, loop (``children``; a
    loop has its variable in ``assignments``), or function (``name`` and ``children``).
    """

    __slots__ = ("assignments", "children", "form", "name", "redirects", "words")

    def __init__(
        self,
        form: str,
        children: Sequence[ShellNode] = (),
        words: Sequence[Word] = (),
        assignments: Sequence[tuple[str, tuple[Word, ...]]] = (),
        redirects: Sequence[Redirect] = (),
        name: str = "",
    ) -> None:
        self.form, self.children, self.words, self.name = form, children, words, name
        self.assignments, self.redirects = assignments, redirects


class CannotJudge(Exception):
    """The tool cannot be judged: its script cannot be parsed, or is too large. The text is the reason."""
