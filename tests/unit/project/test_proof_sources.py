"""Halves of the sources in a proof, and the files that define what the tests are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from liza.config.rules import breakage
from liza.config.rules.breakage import Halves
from liza.project.rules import command_parts


@pytest.mark.parametrize(
    ("names", "halves"),
    [
        (["p/a/x.js", "p/a/y.js", "p/b/z.js"], Halves(("p/a/x.js", "p/a/y.js"), ("p/b/z.js",))),
        (["a.py", "b.py"], Halves(("a.py",), ("b.py",))),
        (["a.py"], Halves(("a.py",))),
        (["one/a.py", "two/b.py", "two/c.py", "two/d.py"], Halves(("one/a.py",), ("two/b.py", "two/c.py", "two/d.py"))),
    ],
)
def test_halves_keep_directories_together(names: list[str], halves: Halves) -> None:
    assert breakage.split_sources(names) == halves


@pytest.mark.parametrize(
    ("text", "is_named"),
    [
        ("git diff HEAD~1", True), ("git diff HEAD^", True), ("--filter=[HEAD^1]", True), ("git diff @~1 --", True),
        ("HEAD~10", False), ("react@^1.2.0", False), ("# not HEAD~1", False), ("git diff $LIZA_BASE", False),
    ],
)  # fmt: skip
def test_the_commit_before_the_last_is_recognised(text: str, is_named: bool) -> None:
    assert command_parts.names_last_commit([text]) is is_named


def test_a_touched_source_differs_by_a_comment_alone() -> None:
    touched = breakage.touch_source("a.py", "x = 1")
    assert touched.startswith("x = 1\n# ")
    assert compile(touched, "a.py", "exec").co_consts == compile("x = 1", "a.py", "exec").co_consts
    assert breakage.touch_source("a.js", "x\n").startswith("x\n// ")


FILES = {
    "Makefile": "include ci/x.mk\ntest:\n\tsh ci/unit.sh\n",
    "ci/x.mk": "A = 1\n",
    "ci/unit.sh": "python3 tools/run.py\n",
    "tools/run.py": "import app\n",
    "app.py": "x = 1\n",
    "main.c": "",
    "package.json": '{"version": "1", "scripts": {"test": "node t.js"}}',
    "t.js": "1\n",
    "pyproject.toml": "[project]\nversion = '1'\n[tool.pytest.ini_options]\naddopts = '-q'\n",
    "conftest.py": "import app\n",
    "tests/test_app.py": "import app\n",
    "README.md": "app.py\n",
}


def definitions(files: dict[str, str], command: str = "make test") -> dict[str, str]:
    def read(names: Sequence[str]) -> dict[str, str]:
        return {name: files[name] for name in names}

    return command_parts.find_definitions([command], files, read)


def test_a_commands_definition_is_in_the_files_it_uses() -> None:
    assert set(definitions(FILES)) == {
        "Makefile", "ci/x.mk", "ci/unit.sh", "tools/run.py", "package.json", "t.js", "pyproject.toml", "conftest.py",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "is_changed"),
    [
        ("Makefile", "test:\n\t-sh ci/unit.sh\n", True),
        ("ci/unit.sh", "true\n", True),
        ("package.json", '{"version": "2", "scripts": {"test": "node t.js"}}', False),
        ("package.json", '{"version": "1", "scripts": {"test": "true"}}', True),
        ("pyproject.toml", "[project]\nversion = '2'\n[tool.pytest.ini_options]\naddopts = '-q'\n", False),
        ("pyproject.toml", "[project]\n[tool.pytest.ini_options]\naddopts = '-k x'\n", True),
        ("app.py", "x = 2\n", False),
    ],
)
def test_only_changed_test_definitions_change_the_meaning_of_a_command(name: str, text: str, is_changed: bool) -> None:
    before, after = definitions(FILES), definitions({**FILES, name: text})
    digests = [command_parts.digest_definitions(files) for files in (before, after)]
    assert (digests[0] != digests[1]) is is_changed
    assert (name in command_parts.changed_definitions(before, after)) is is_changed


def test_sources_that_a_command_runs_are_part_of_the_tests() -> None:
    sources = ("app.py", "tools/run.py", "ci/unit.sh", "t.js")
    assert command_parts.choose_tested(sources, ["make test"], definitions(FILES)) == ("app.py", "tools/run.py")
    assert command_parts.choose_tested(("check.sh",), ["./check.sh --all"], {}) == ()
    assert command_parts.choose_tested(("ci/check.sh",), ["sh check.sh"], {}) == ("ci/check.sh",)
    assert command_parts.choose_tested(("a.py",), ["ruff check a.py && pytest"], {}) == ("a.py",)
