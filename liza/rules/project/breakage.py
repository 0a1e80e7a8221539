"""Source text that fails, for the proof that the tests test the checkout that they run in. Pure."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from liza.rules.lazy_pattern import lazy_pattern

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
_COMPILED = (_NOT_CODE, _BY_SUFFIX[".rs"], _BY_SUFFIX[".c"])
_TEST_DIRECTORIES = frozenset(
    ("test", "tests", "__tests__", "spec", "specs", "testing", "e2e", "testdata", "fixtures", "__mocks__")
)
_TEST = lazy_pattern(
    r"tests?\.\w+|conftest\.py|test[_-].*|run[_-]?tests?.*|.*_(test|tests|spec)\.\w+|.*\.(test|spec|tests|cy|stories)\.\w+"
    r"|.*Tests?\.(java|kt|cs|swift|php|scala)"
)
_TOOL = lazy_pattern(
    r"setup\.py|noxfile\.py|fabfile\.py|manage\.py|build\.rs|(Gruntfile|gulpfile|Jakefile|webpack.*)\.\w+"
    r"|.*\.(config|conf|setup|d)\.[cm]?[jt]s|.*rc\.[cm]?js"
)


def is_test(name: str) -> bool:
    """Return whether a tracked file is a test, test data, or a file that only tools read: it is not changed."""
    path = PurePosixPath(name)
    if any(part in _TEST_DIRECTORIES or part.startswith(".") for part in path.parts[:-1]) or path.name.startswith("."):
        return True
    return _TEST.fullmatch(path.name) is not None or _TOOL.fullmatch(path.name) is not None or name == "docs/conf.py"


def broken_source(name: str, first_line: str, mentioned: str = "") -> str | None:
    """Return the failing text that replaces a tracked source; None if it is a test or not a source of a known kind.

    ``first_line`` decides the kind of a file without a known suffix. ``mentioned`` is the text that starts the tests; a
    script named there is part of the tests and is not replaced.
    """
    if is_test(name):
        return None
    text = _BY_SUFFIX.get(PurePosixPath(name).suffix)
    if text is None and first_line.startswith("#!"):
        text = _BY_PROGRAM.get(_program(first_line))
    if text is None or (text not in _COMPILED and _mentions(mentioned, name)):
        return None
    return f"{first_line}\n{text}" if first_line.startswith("#!") else text


def _program(first_line: str) -> str:
    """Return ``python`` for ``#!/usr/bin/env -S python3.11 -u``: the program's name without its version."""
    words = first_line.removeprefix("#!").split()
    if words and PurePosixPath(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return re.sub(r"[\d.]+$", "", PurePosixPath(words[0]).name) if words else ""


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w/.-])(\./)?{re.escape(name)}(?![\w/-])", text) is not None
