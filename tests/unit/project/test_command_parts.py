"""The parts of a test command: where it is split, which parts are tests, and whose exit status counts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from liza.project.broken_runs import split_statements
from liza.project.rules import command_parts
from liza.project.rules.command_parts import PartContext


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ("a && b", ["a", "b"]),
        ("a; b\nc", ["a", "b", "c"]),
        ("a || b && c", ["a || b", "c"]),
        ("a && b || c", ["a && b || c"]),
        ("a | b && c > d", ["a | b", "c > d"]),
        ("echo 'a && b; c'", ["echo 'a && b; c'"]),
        ("(a && b) && { c; d; }", ["(a && b)", "{ c; d; }"]),
        ("a && b & c", ["a && b &", "c"]),
        ("for x in a; do b; done; c # d", ["for x in a; do b; done", "c"]),
        ("a && cat <<X\nb && c\nX\nd", ["a", "cat <<X\nb && c\nX", "d"]),
        ("a ((", ["a (("]),
    ],
)
def test_a_command_is_split_at_its_top_level(command: str, parts: list[str]) -> None:
    assert [statement.text for statement in split_statements(command)] == parts


@pytest.mark.parametrize(
    "command",
    [
        "cd a", "export A=1", "A=1 B='x y'", "set -e", "mkdir -p x", "true", "sleep 1", "npm ci",
        "/bin/mkdir -p x", "go generate ./...", "python manage.py migrate --noinput", "npx prisma generate",
        "npm install --no-audit x", "A=$(b c) uv sync --frozen", "python -m pip install -e .",
        ".venv/bin/pip install x", "git submodule update --init", "[ -f x ]", "test -d x || exit 1",
        ". .venv/bin/activate", "python manage.py runserver &", "f() { pytest; }", "docker compose up -d",
        "node --version",
    ],
)  # fmt: skip
def test_what_prepares_a_test_is_no_test(command: str) -> None:
    assert [statement.is_test for statement in split_statements(command)] == [False]


@pytest.mark.parametrize(
    "command",
    [
        "pytest", "./service", "bin/install x", "A=1 pytest", "npm test", "npm run build", "make",
        "[ $(a) = 1 ]", "uv run pytest", "pytest &",
        "test -d x || make", ". ./run-tests", "env A=1 pytest", "pytest | tee log", "for x in a; do sh $x; done",
    ],
)  # fmt: skip
def test_everything_else_may_be_a_test(command: str) -> None:
    assert [statement.is_test for statement in split_statements(command)] == [True]


@pytest.mark.parametrize(
    ("command", "lost"),
    [
        ("a && b", ()), ("a; b", (0,)), ("a && b; c", (0, 1)), ("a; echo x", (0,)), ("set -e; a; b", ()),
        ("set -e; a && b; c", (1,)), ("a || exit 1; b", ()), ("a || exit 0; b", (0,)), ("a; exit $?", ()),
        ("a; r=$?; b; exit $r", ()), ("server & a", ()),
    ],
)  # fmt: skip
def test_a_status_that_does_not_decide_the_command_is_lost(command: str, lost: tuple[int, ...]) -> None:
    assert command_parts.lost_statements(split_statements(command)) == lost


@pytest.mark.parametrize(
    ("command", "statuses"),
    [
        ("false && true; make", {0: 1, 2: 2}),
        ("cd sub && test -f x && sh -c 'exit 3' && sh -c 'exit 4'", {2: 3, 3: 4}),
        ("A=5; B=6 sh -c 'exit $A'; sh -c \"exit $A\"", {1: 0, 2: 5}),
        ("set -e; grep -q y x; for i in 1 2; do sh -c 'exit 7'; grep -q . x; done; grep -q . x", {1: 2, 2: 7, 3: 2}),
        ("exec sh -c 'exit 9'; expr 1", {0: 9, 1: 0}),
        ("expr 1 &", {0: 0}),
    ],
    ids=["all run", "directory", "variables", "errexit", "exec", "background"],
)  # fmt: skip
def test_each_part_runs_after_any_result_of_the_others(tmp_path: Path, command: str, statuses: dict[int, int]) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "x").write_text("y\n")
    statements, record = split_statements(command), tmp_path / "record"
    script = command_parts.write_script(statements, str(record)).replace("make", "sh -c 'exit 2'")
    done = subprocess.run(["/bin/sh", "-c", script], cwd=tmp_path, check=False, capture_output=True, text=True)
    recorded = command_parts.read_record(record.read_text() if record.exists() else "")
    tests = command_parts.test_positions(statements)
    assert {number: recorded[number] for number in tests if number in statuses} == {
        number: status for number, status in statuses.items() if number in tests
    }, done.stderr
    assert set(recorded) == set(tests)


@pytest.mark.parametrize(
    ("text", "texts", "output", "shape"),
    [
        ("pytest | tee log", (), "", "its exit status is that of `tee`"),
        ("pytest || :", (), "", "its exit status is lost: `|| :`"),
        ("pytest &", (), "", "it runs in the background: its exit status is lost"),
        ("pytest &> log", (), "", "`&>` starts it in the background in sh: its exit status is lost"),
        ("npm test", ("jest -o",), "", "it tests uncommitted changes only: `jest -o`, and a candidate is committed"),
        ("npm test", ("vitest run --changed",), "",
         "it tests uncommitted changes only: `vitest run --changed`, and a candidate is committed"),
        ("npm test", ("vitest run --changed HEAD~1",), "", ""),
        ("jest --passWithNoTests", ("jest --passWithNoTests",), "", "it passes without tests: `passWithNoTests`"),
        ("turbo test", (), " cache hit, replaying logs\n>>> FULL TURBO", "it shows a cached result: cache hit"),
        ("pytest", (), "==== 2 deselected in 0.1s ====", "it ran no test: all were skipped or deselected"),
        ("go test ./...", (), "?   \tx\t[no test files]\n", "it ran no test: no test files"),
        ("make t", (), "make: [Makefile:2: t] Error 1 (ignored)\n", "make ignores the error: `-` before a recipe"),
        ("./t", (), "", ""),
    ],
)  # fmt: skip
def test_the_known_causes_of_a_green_part_are_named(text: str, texts: tuple[str, ...], output: str, shape: str) -> None:
    assert command_parts.find_shape(PartContext(text, texts, output)) == shape


@pytest.mark.parametrize(
    ("output", "ran"),
    [
        ("1 passed, 3 skipped in 0.1s", True), ("3 skipped in 0.1s", False), ("no tests ran in 0.00s", False),
        ("Ran 3 tests in 0.1s\n\nOK (skipped=3)", False), ("Ran 3 tests in 0.1s\n\nOK", True),
        ("Tests:       2 skipped, 2 total", False), ("Tests:       2 passed, 2 total", True),
        ("# tests 2\n# pass 0\n", False), ("# pass 2\n", True), ("test result: ok. 0 passed; 0 failed", False),
        ("2 skipped in 1s\n4 passed in 1s", True), ("  0 passing (1ms)", False), ("done", None),
    ],
)  # fmt: skip
def test_summaries_of_test_runners_show_whether_a_test_ran(output: str, ran: bool | None) -> None:
    assert command_parts.ran_tests(output) is ran
