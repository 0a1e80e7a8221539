"""Submodules in worktrees: a commit that nobody pushed, and what a slot shows to the next task."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import git
from tests.journeys.crews import APPROVE, QUICK, Crew

SET_UP = "git submodule update --init --recursive"
WORK_IN_SUBMODULE = """\
cd lib; echo new > new.txt; git add -A; git commit -q -m "change of the library"; cd ..
git add -A; git commit -q -m "use it"
liza submit
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """The repository of the submodule."""
    with (Path(os.environ["HOME"]) / ".gitconfig").open("a") as configured:
        configured.write('[protocol "file"]\n\tallow = always\n')
    path = tmp_path / "library"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    (path / "rate.txt").write_text("1\n")
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", "first")
    return path


@pytest.fixture
def crew(tmp_path: Path, library: Path) -> Iterator[Crew]:
    """A crew whose repository has the library as a submodule."""
    root, notes = tmp_path / "shop", tmp_path / "notes"
    root.mkdir()
    notes.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "README.md").write_text("shop\n")
    git(root, "submodule", "--quiet", "add", str(library), "lib")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    made = Crew(root, notes)
    made.prepare("init", "Sell things")
    made.configure(**QUICK)
    yield made
    made.clean()


def test_a_review_whose_submodule_was_never_pushed_says_so_with_the_log_and_the_command_that_lets_it_go_on(
    crew: Crew,
) -> None:
    assert crew.state().config.sandbox_setup == SET_UP
    crew.add("task-1")
    coder = crew.agent("coder-1", crew.script("coder", WORK_IN_SUBMODULE))
    crew.wait_status("task-1", "READY_FOR_REVIEW")
    assert coder.stop() == 0
    program = crew.script("reviewer", APPROVE)
    reviewer = crew.agent("code-reviewer-1", program)
    assert reviewer.wait_gone() == 1

    commit = crew.git("rev-parse", "HEAD", cwd=crew.root / ".worktrees" / "task-1" / "lib").strip()
    log = ".liza/logs/setup-code-reviewer-1.log"
    excerpt = (crew.root / log).read_text().splitlines()
    shown = reviewer.said().splitlines()
    headline = next(number for number, line in enumerate(shown) if "crashed before its program started" in line)
    assert f"(log: {log}): commit {commit[:10]} of submodule lib was not pushed" in shown[headline]
    # The lines below it are complete lines of the log.
    assert shown[headline + 1] in excerpt

    told = crew.json("status")
    (alarm,) = [alarm for alarm in told["alerts"] if alarm["kind"] == "supervisor_left"]
    assert f"(log: {log}): commit {commit[:10]} of submodule lib was not pushed" in alarm["message"]
    push, _, restart = alarm["next"].partition("; ")
    assert restart.startswith("liza up ")
    assert f"less {log}" in crew.liza("logs", "code-reviewer-1", code=1)

    subprocess.run(["sh", "-c", push], cwd=crew.root, check=True, capture_output=True)
    again = crew.agent("code-reviewer-1", program)
    crew.wait_status("task-1", "APPROVED", "MERGED")
    assert again.stop() == 0
