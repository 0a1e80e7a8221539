"""A new crew of a repository takes up no work of an earlier one; a restored board loses none."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import commit_all, variant, worktree_of
from tests.journeys.crews import Crew, begun

SAVED = "refs/liza/earlier/1/total/coder-1.1"


def started(crew: Crew, goal: str) -> str:
    return crew.prepare("init", goal, "--no-test", "--confinement", "off")


def claimed(crew: Crew, task: str = "total") -> Path:
    crew.liza("claim", task, "--agent", "coder-1")
    return worktree_of(crew.root, task)


def left(crew: Crew, *, committed: bool = False) -> None:
    """A task of the first crew, with work that is not merged."""
    started(crew, "The first goal")
    crew.add("total")
    directory = claimed(crew)
    if committed:
        commit_all(directory, "first", {"total.txt": "first\n"})
    (directory / "left.txt").write_text("left\n")


def end(crew: Crew, *, purge: bool) -> None:
    if purge:
        assert "refs/liza/salvage/total/coder-1.1: no other ref has" in crew.liza("down", "--purge")
    else:
        shutil.rmtree(crew.paths.liza)


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()} - {".git"}


@pytest.mark.parametrize("purge", [pytest.param(True, id="purged"), variant(False, name=".liza deleted")])
def test_a_new_crew_begins_an_old_task_id_from_integration(tmp_path: Path, purge: bool) -> None:
    crew = begun(tmp_path)
    left(crew)
    end(crew, purge=purge)
    printed = started(crew, "Another goal")
    if not purge:
        crew.git("branch", "-m", "task/total", "old-total")
    crew.add("total")
    assert names(claimed(crew)) == {"README.md"}
    saved = SAVED if purge else "refs/liza/salvage/earlier.total/coder-1.1"
    assert crew.git("show", f"{saved}:left.txt") == "left"
    if purge:
        assert re.search(r"work of an earlier crew is in refs/liza/earlier/1/.*: git for-each-ref", printed)
        assert SAVED in crew.git(*printed.partition("tasks: git ")[2].splitlines()[0].split())
    crew.liza("task", "release", "total")
    assert "left.txt" not in names(claimed(crew))
    told = crew.liza("down", "--purge")
    assert saved in told
    assert crew.git("show", f"{saved}:left.txt") == "left"


@pytest.mark.campaign
@pytest.mark.parametrize("purge", [pytest.param(True, id="purged"), variant(False, name=".liza deleted")])
def test_a_branch_of_an_earlier_crew_is_refused_by_name(tmp_path: Path, purge: bool) -> None:
    crew = begun(tmp_path)
    left(crew, committed=True)
    commit = crew.git("rev-parse", "task/total")
    end(crew, purge=purge)
    started(crew, "Another goal")
    words = ("--desc", "Write", "--done", "it is there", "--scope", "total.txt", "--spec", "README.md")
    refused = crew.liza("task", "add", "--id", "total", *words, code=1)
    assert "there is a branch task/total already" in refused
    crew.git(*refused.partition("next: git ")[2].split())
    crew.add("total")
    assert names(claimed(crew)) == {"README.md"}
    assert crew.git("rev-parse", "task-total") == commit


@pytest.mark.campaign
def test_a_damaged_slot_of_an_earlier_crew_stops_no_init(tmp_path: Path) -> None:
    crew = begun(tmp_path)
    left(crew)
    end(crew, purge=False)
    (crew.root / ".git" / "worktrees" / "s1" / "HEAD.lock").touch()
    crew.git("update-ref", "-d", "refs/heads/task/total")
    started(crew, "Another goal")
    crew.add("total")
    assert names(claimed(crew)) == {"README.md"}
    assert crew.git("show", "refs/liza/salvage/earlier.total/coder-1.1:left.txt") == "left"


@pytest.mark.campaign
@pytest.mark.parametrize("lost", [pytest.param(True, id="without the claim"), variant(False, name="complete")])
def test_a_restored_board_keeps_the_work_of_its_tasks(tmp_path: Path, lost: bool) -> None:
    crew = begun(tmp_path)
    left(crew, committed=True)
    crew.liza("task", "release", "total")
    if lost:
        crew.liza("down")
        (commit,) = crew.git("log", "--format=%H", "--grep=^total: new", "refs/liza/blackboard").split()
        crew.git("update-ref", "refs/liza/blackboard", commit)
    shutil.rmtree(crew.paths.liza)
    crew.liza("restore", "--last-good", "--stop")
    assert names(claimed(crew)) == {"README.md", "total.txt", "left.txt"}
