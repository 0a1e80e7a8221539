"""Submodules in worktrees: a commit that nobody pushed, and what a slot shows to the next task."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import commit_all, git, make_repository, worktree_of
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
    make_repository(path, {"rate.txt": "1\n"})
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
    commit_all(root, "first")
    made = Crew(root, notes)
    made.prepare("init", "Sell things")
    made.configure(**QUICK)
    yield made
    made.clean()


@pytest.mark.campaign
def test_a_review_with_an_unpushed_submodule_names_the_command(
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

    commit = crew.git("rev-parse", "HEAD", cwd=worktree_of(crew.root, "task-1") / "lib").strip()
    log = ".liza/logs/setup-code-reviewer-1.log"
    excerpt = (crew.root / log).read_text().splitlines()
    shown = reviewer.said().splitlines()
    # Of the last try: each try writes the log anew, and only the first one clones the submodule.
    headline = max(number for number, line in enumerate(shown) if "crashed before its program started" in line)
    assert f"(log: {log}): commit {commit[:10]} of submodule lib was not pushed" in shown[headline]
    # The lines below it are complete lines of the log.
    assert shown[headline + 1] in excerpt, shown

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


def test_submodule_changes_in_a_slot_are_hidden_from_others(crew: Crew) -> None:
    crew.add("task-1")
    script = """\
    (cd lib; git status --porcelain; git log --format=%s) > "$NOTES/lib-$LIZA_TASK"
    git status --porcelain > "$NOTES/status-$LIZA_TASK"
    echo > "$NOTES/seen-$LIZA_TASK"
    echo 2 > lib/rate.txt; echo draft > lib/draft.txt
    echo "$LIZA_TASK" > "$LIZA_TASK.txt"; git add "$LIZA_TASK.txt"; git commit -q -m work
    liza submit
    """
    agents = [crew.agent("coder-1", crew.script("coder", script))]
    agents.append(crew.agent("code-reviewer-1", crew.script("reviewer", APPROVE)))
    crew.wait_status("task-1", "MERGED")
    crew.add("task-2")
    crew.wait_note("seen-task-2")
    assert [agent.stop() for agent in agents] == [0, 0]
    for task in ("task-1", "task-2"):
        assert (crew.notes / f"lib-{task}").read_text() == "first\n"
        assert (crew.notes / f"status-{task}").read_text() == ""
    (saved,) = crew.git("for-each-ref", "--format=%(refname)", "refs/liza/salvage/task-1/").split()
    assert crew.git("ls-tree", "-r", "--name-only", saved).split() == [".liza-nested/lib.bundle"]
