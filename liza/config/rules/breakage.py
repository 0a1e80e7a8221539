"""Sources that fail, for the proof of the tests: their texts, and which of them fail together. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from liza.model.value_classes import Value

BREAKAGE_MARK = "liza: this source was made to fail, to see whether the tests notice"
_PYTHON = f'raise RuntimeError("{BREAKAGE_MARK}")\n'
_JAVASCRIPT = f'throw new Error("{BREAKAGE_MARK}");\n'
_SHELL = f"echo '{BREAKAGE_MARK}' >&2\nexit 97\n"
_PERL = f'die "{BREAKAGE_MARK}";\n'
_RUBY = f'raise "{BREAKAGE_MARK}"\n'
_NOT_CODE = f"{BREAKAGE_MARK}\n"
_BY_SUFFIX = {
    **dict.fromkeys((".py", ".pyx"), _PYTHON),
    **dict.fromkeys((".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx"), _JAVASCRIPT),
    **dict.fromkeys((".sh", ".bash", ".zsh"), _SHELL),
    **dict.fromkeys((".pl", ".pm"), _PERL),
    **dict.fromkeys((".rb", ".ex", ".exs"), _RUBY),
    ".php": f"<?php throw new Exception('{BREAKAGE_MARK}');\n",
    ".lua": f'error("{BREAKAGE_MARK}")\n',
    ".rs": f'compile_error!("{BREAKAGE_MARK}");\n',
    **dict.fromkeys((".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".m"), f"#error {BREAKAGE_MARK}\n"),
    **dict.fromkeys((".go", ".java", ".kt", ".scala", ".cs", ".swift", ".zig", ".hs", ".ml", ".dart"), _NOT_CODE),
}
_BY_PROGRAM = {
    **dict.fromkeys(("sh", "bash", "dash", "zsh", "ksh"), _SHELL),
    **dict.fromkeys(("python", "python2", "python3"), _PYTHON),
    **dict.fromkeys(("node", "bun"), _JAVASCRIPT),
    **dict.fromkeys(("perl",), _PERL),
    **dict.fromkeys(("ruby",), _RUBY),
}
_TEST_DIRECTORIES = frozenset(
    ("test", "tests", "__tests__", "spec", "specs", "testing", "e2e", "testdata", "fixtures", "__mocks__")
)
_TEST = re.compile(
    r"tests?\.\w+|conftest\.py|test[_-].*|run[_-]?tests?.*|.*_(test|tests|spec)\.\w+|.*\.(test|spec|tests|cy|stories)\.\w+"
    r"|.*Tests?\.(java|kt|cs|swift|php|scala)"
)
_TOOL = re.compile(
    r"setup\.py|noxfile\.py|fabfile\.py|manage\.py|build\.rs|(Gruntfile|gulpfile|Jakefile|webpack.*)\.\w+"
    r"|.*\.(config|conf|setup|d)\.[cm]?[jt]s|.*rc\.[cm]?js"
)

_COMMENTS = {
    **dict.fromkeys((".py", ".pyx", ".sh", ".bash", ".zsh", ".pl", ".pm", ".rb", ".ex", ".exs", ""), "# {}"),
    **dict.fromkeys((".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".m"), "/* {} */"),
    **dict.fromkeys((".lua", ".hs"), "-- {}"),
    ".ml": "(* {} *)",
    ".php": "",
}
"""Comments by suffix; all other sources have ``//``. PHP: a text behind ``?>`` would be output."""


def is_test(name: str) -> bool:
    """Return whether a tracked file is a test, test data, or a file that only tools read: it is not changed."""
    path = PurePosixPath(name)
    if is_in_test_directory(name) or any(part.startswith(".") for part in path.parts):
        return True
    return _TEST.fullmatch(path.name) is not None or _TOOL.fullmatch(path.name) is not None or name == "docs/conf.py"


def is_in_test_directory(name: str) -> bool:
    """Return whether a file is in a directory of tests."""
    return any(part in _TEST_DIRECTORIES for part in PurePosixPath(name).parts[:-1])


def broken_source(name: str, first_line: str) -> str | None:
    """Return the failing text that replaces a tracked source; None if it is a test or not a source of a known kind.

    ``first_line`` decides the kind of a file without a known suffix. The text can be parsed, and fails when it runs; of
    a compiled language it does not compile.
    """
    if is_test(name):
        return None
    text = _BY_SUFFIX.get(PurePosixPath(name).suffix)
    if text is None and first_line.startswith("#!"):
        text = _BY_PROGRAM.get(_program(first_line))
    if text is None:
        return None
    return f"{first_line}\n{text}" if first_line.startswith("#!") else text


def add_syntax_error(text: str) -> str:
    """Return a failing source that also neither parses nor compiles: linters and type checkers notice it too."""
    return f"{text}) {BREAKAGE_MARK}\n"


def _program(first_line: str) -> str:
    """Return ``python`` for ``#!/usr/bin/env -S python3.11 -u``: the program's name without its version."""
    words = first_line.removeprefix("#!").split()
    if words and PurePosixPath(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return re.sub(r"[\d.]+$", "", PurePosixPath(words[0]).name) if words else ""


class Halves(Value):
    """Two halves of the sources. ``second`` is empty if there is only one source."""

    first: tuple[str, ...]
    second: tuple[str, ...] = ()


def split_sources(names: Sequence[str]) -> Halves:
    """Split sources into halves of similar size; what is in one directory stays together as far as possible."""
    groups = _group(sorted(names))
    if len(groups) < 2:
        return Halves(tuple(sorted(names)))
    first: list[str] = []
    while groups and (not first or 2 * (len(first) + len(groups[0])) <= len(names)):
        first += groups.pop(0)
    if not groups:
        return Halves(tuple(first))
    return Halves(tuple(first), tuple(name for group in groups for name in group))


def _group(names: Sequence[str]) -> list[list[str]]:
    """Group names by the first level of directories that tells them apart, else each name alone."""
    depth = max((len(PurePosixPath(name).parts) for name in names), default=0)
    for level in range(1, depth):
        groups: dict[tuple[str, ...], list[str]] = {}
        for name in names:
            groups.setdefault(PurePosixPath(name).parts[:-1][:level], []).append(name)
        if len(groups) > 1:
            return list(groups.values())
    return [[name] for name in names]


def describe_sources(names: Sequence[str], others: Sequence[str]) -> str:
    """Return the directories of sources, at most three; of a directory that has ``others`` too, the sources."""
    shared = {PurePosixPath(name).parent for name in others}
    paths = dict.fromkeys(
        path if path.parent in shared or "/" not in name else path.parent for name, path in _with_paths(names)
    )
    listed = [str(path) for path in paths if not any(parent in paths for parent in path.parents)]
    rest = len(listed) - 3
    return ", ".join(listed[:3]) + (f" and {rest} more" if rest > 0 else "")


def _with_paths(names: Sequence[str]) -> Iterator[tuple[str, PurePosixPath]]:
    return ((name, PurePosixPath(name)) for name in names)


def touch_source(name: str, text: str) -> str:
    """Return a source with a comment at its end: it is changed, and means the same."""
    form = _COMMENTS.get(PurePosixPath(name).suffix, "// {}")
    return f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{form.format(BREAKAGE_MARK)}\n"
