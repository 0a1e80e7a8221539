"""`liza init` shows what it runs, tells the first failed test, and keeps the set-up of a refused try."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from liza.project import saved_setup
from tests.conftest import commit_all, until
from tests.journeys.crews import BIN, LIMIT, Crew, begun

RED = """\
import warnings

def test_it_works():
    warnings.warn("old", DeprecationWarning)

def test_it_adds_up():
    assert 1 + 1 == 3, "the sum is wrong"
"""
PYTEST = "python3 -m pytest -q -p no:cacheprovider"
SETUP = 'echo ran >> "$RUNS" && mkdir -p built && echo yes > built/done'


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    """A project with tests and without a crew."""
    crew = begun(tmp_path)
    yield crew
    crew.clean()


def commit(crew: Crew, name: str, text: str) -> None:
    path = crew.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    commit_all(crew.root, name)


def init(crew: Crew, *words: str, code: int = 0) -> str:
    runs = crew.notes / "runs"
    return crew.liza("init", "It adds up", "--confinement", "off", *words, code=code, RUNS=str(runs))


def count_runs(crew: Crew) -> int:
    runs = crew.notes / "runs"
    return len(runs.read_text().splitlines()) if runs.exists() else 0


def test_a_line_counts_at_a_terminal_while_commands_run(crew: Crew) -> None:
    gate = crew.gate("gate")
    ours, theirs = pty.openpty()
    words = [str(BIN / "liza"), "init", "It adds up", "--setup", f"cat {gate}", "--test", "true", "--no-proof"]
    child = subprocess.Popen(
        [*words, "--confinement", "off"],
        cwd=crew.root,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
    )
    crew.children.append(child)
    os.close(theirs)
    shown = b""

    def counted() -> set[bytes]:
        nonlocal shown
        shown += os.read(ours, 4096)
        return set(re.findall(rb"running cat [^\r]* \xe2\x80\xa6 (\d+ s)", shown))

    until(lambda: len(counted()) >= 2, "a line that counts")
    crew.open_gate("gate")
    with suppress(OSError):  # the end of a terminal
        while more := os.read(ours, 4096):
            shown += more
    assert child.wait(timeout=LIMIT) == 0, shown
    last = shown.decode().rpartition("\x1b[K")[2]
    assert "running" not in last
    assert "s ok" in shown.decode()


def test_a_pipe_gets_one_line_at_the_start_and_at_the_end(crew: Crew) -> None:
    shown = init(crew, "--setup", SETUP, "--test", "true", "--no-proof")
    lines = [line for line in shown.splitlines() if line.startswith("  set-up")]
    assert len(lines) == 2
    assert "\r" not in shown
    assert "\x1b" not in shown


def test_red_tests_show_the_first_failure_and_keep_its_output(crew: Crew) -> None:
    commit(crew, "tests/test_sum.py", RED)
    refused = init(crew, "--test", PYTEST, code=1)
    assert "FAILED tests/test_sum.py::test_it_adds_up" in refused
    assert "AssertionError: the sum is wrong" in refused
    assert "DeprecationWarning" not in refused
    (show,) = re.findall(r"whole output: less (\S+)", refused)
    assert "DeprecationWarning" in (crew.root / show).read_text()
    assert not crew.paths.liza.exists()


@pytest.mark.campaign
def test_a_second_try_does_not_run_the_same_setup_again(crew: Crew) -> None:
    commit(crew, "tests/test_sum.py", RED)
    commit(crew, ".gitignore", "built/\n__pycache__/\n")
    words = ("--setup", SETUP, "--no-proof")
    assert "kept for the next try" in init(crew, *words, "--test", "test -f built/done && false", code=1)
    assert count_runs(crew) == 1
    assert "AssertionError" in init(crew, *words, "--test", f"test -f built/done && {PYTEST}", code=1)
    assert count_runs(crew) == 1
    shown = init(crew, *words, "--test", "test -f built/done")
    assert "kept from the last try" in shown
    assert count_runs(crew) == 1
    assert not saved_setup.saved_directory(crew.root).exists()


@pytest.mark.campaign
def test_changed_inputs_run_the_setup_in_an_empty_worktree(crew: Crew) -> None:
    commit(crew, ".gitignore", "built/\n")
    setup = 'echo "ran with $(ls built 2>/dev/null)" >> "$RUNS"; mkdir -p built; touch built/done'
    words = ("--setup", setup, "--no-proof", "--test")
    init(crew, *words, "false", code=1)
    commit(crew, "requirements.txt", "nothing\n")
    init(crew, *words, "false", code=1)
    # A source is no input of the set-up that git knows: it runs again, on what it left.
    commit(crew, "sum.py", "print(1)\n")
    init(crew, *words, "true")
    assert (crew.notes / "runs").read_text().splitlines() == ["ran with ", "ran with ", "ran with done"]


@pytest.mark.campaign
def test_a_missing_module_leads_to_a_command_that_installs_it(crew: Crew) -> None:
    commit(crew, "requirements_test.txt", "pytest\nnosuchmodule\n")
    commit(crew, "tests/test_sum.py", "import nosuchmodule\n\ndef test_it():\n    pass\n")
    refused = init(crew, "--test", PYTEST, code=1)
    assert "the tests need the module nosuchmodule" in refused
    assert "-r requirements_test.txt" in refused.splitlines()[-1]
    assert refused.splitlines()[-1].strip().startswith("next: liza init 'It adds up' ")


def test_a_second_crew_is_refused_with_the_way_on(crew: Crew) -> None:
    init(crew, "--no-test")
    refused = init(crew, "--no-test", code=1)
    assert "liza up" in refused
    assert "liza down --purge" in refused
