"""A merged task is taken back by the installed commands, tested, and nothing else moves."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import GIT_CONFIG, commit_all, worktree_of
from tests.journeys.crews import APPROVE, WORK, Crew, started

FIVE = ("one", "two", "three", "four", "five")
CHECK = """\
git rev-parse HEAD >> "NOTES/tested"
[ ! -e NOTES/needed ] || [ -e "$(cat NOTES/needed)" ] || { echo "it is missing"; exit 1; }
"""
OWN_REFS = (
    "refs/liza/integration",
    "refs/liza/blackboard",
    "refs/heads/integration",
    "refs/liza/notes",
    "refs/notes/liza",
)
"""Refs that an undo moves."""


def prepare_batch(crew: Crew) -> None:
    """Five tasks of a person, approved one after the other and merged as one batch."""
    (crew.notes / "check").write_text(CHECK.replace("NOTES", str(crew.notes)))
    crew.configure(integration_command=f"sh {crew.notes}/check", queue={"batch": 5})
    crew.add(*FIVE)
    for task in FIVE:
        crew.prepare("queue", "hold", task, "all five together")
        approve_by_hand(crew, task)
    for task in FIVE:
        crew.prepare("queue", "release", task)
    assert sorted(crew.json("merge")["merged"]) == sorted(FIVE)
    runs = [json.loads(line) for line in crew.paths.gates.read_text().splitlines()]
    assert [run["tasks"] for run in runs if run["outcome"] == "green"] == [5]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a crew that has merged a batch of five, made once for this module."""
    path, home = tmp_path_factory.mktemp("batch"), tmp_path_factory.mktemp("home")
    (home / ".gitconfig").write_text(GIT_CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("LIZA_", "GIT_"))]:
            patch.delenv(name)
        patch.setenv("HOME", str(home))
        patch.setenv("GIT_CONFIG_GLOBAL", str(home / ".gitconfig"))
        with started(path, inside=True) as crew:
            prepare_batch(crew)
            yield path


@pytest.fixture
def crew(made: Path, tmp_path: Path) -> Iterator[Crew]:
    """That crew, in its place, as it was after the batch."""
    for name in ("project", "notes"):
        shutil.copytree(made / name, tmp_path / name, symlinks=True)
    crew = Crew(made / "project", made / "notes")
    try:
        yield crew
    finally:
        crew.clean()
        for name in ("project", "notes"):
            shutil.rmtree(made / name)
            shutil.move(tmp_path / name, made / name)


def picture(crew: Crew, *changing: str) -> dict[str, Any]:
    """What an undo must not move: refs, the person's checkout and its files, and every task but ``changing``."""
    rows = crew.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return {
        "refs": [row for row in rows if not row.startswith(OWN_REFS)],
        "head": crew.git("symbolic-ref", "HEAD"),
        "status": crew.git("status", "--porcelain", "--ignored"),
        "files": sorted(path.name for path in crew.root.iterdir()),
        "tasks": [task for task in crew.state().tasks if task.id not in changing],
    }


def files_of(crew: Crew) -> set[str]:
    return {name.removesuffix(".txt") for name in crew.git("ls-tree", "--name-only", "integration").split()} - {
        "README.md"
    }


def approve_by_hand(crew: Crew, task: str, **files: str) -> None:
    """An approved task of a person, which writes ``files``."""
    crew.prepare("claim", task, "--agent", "coder-1")
    there = worktree_of(crew.root, task)
    for name, text in (files or {task: "x\n"}).items():
        (there / f"{name}.txt").write_text(text)
    commit_all(there, "work")
    crew.prepare("submit", cwd=there)
    crew.prepare("verdict", "approve", "good", "--task", task)


def merge_by_hand(crew: Crew, task: str, **files: str) -> None:
    """A merged task of a person, which writes ``files``."""
    approve_by_hand(crew, task, **files)
    crew.prepare("merge", task)


@pytest.mark.campaign
def test_first_middle_and_last_of_a_batch_are_undone_tested(crew: Crew) -> None:
    before, left = picture(crew, "one", "three", "five"), set(FIVE)
    for task, why in (("three", "no customer has a fax"), ("one", ""), ("five", "")):
        tested = len((crew.notes / "tested").read_text().splitlines())
        result = crew.json("undo", task, *(["--because", why] if why else []))
        left -= {task}
        assert (result["result"], result["status"], result["tested"]) == ("changed", "ABANDONED", True)
        assert files_of(crew) == left
        tip = crew.git("rev-parse", "integration")
        assert result["undo_commit"] == tip
        assert (crew.notes / "tested").read_text().splitlines()[tested:] == [tip]
    assert picture(crew, "one", "three", "five") == before
    assert {task.id: task.status.value for task in crew.state().tasks} == {
        **dict.fromkeys(("two", "four"), "MERGED"),
        **dict.fromkeys(("one", "three", "five"), "ABANDONED"),
    }
    commit = crew.json("task", "show", "three")["undo"]["commit"][:10]
    assert f"three undone as {commit}, tested: no customer has a fax" in crew.liza("history")
    assert f"undone as {commit}: no customer has a fax" in crew.liza("status")
    assert f"undone as {commit}: no customer has a fax" in crew.liza("task", "list")
    assert re.search(f"undone as +{commit}, tested", crew.liza("task", "show", "three"))
    assert "3 merges undone" in crew.liza("metrics")
    assert crew.json("metrics")["merged"] == 2
    assert crew.json("land")["tasks"] == ["two", "four"]
    assert crew.json("undo", "three")["result"] == "unchanged"
    assert crew.json("validate")["valid"]


def test_a_red_undo_leaves_everything_as_it_was(crew: Crew) -> None:
    (crew.notes / "needed").write_text("two.txt")
    before, tip = picture(crew), crew.git("rev-parse", "integration")
    printed = crew.liza("undo", "two", code=1)
    assert "the undo of two is red" in printed
    assert "it is missing" in printed
    assert picture(crew) == before
    assert crew.git("rev-parse", "integration") == tip
    assert crew.json("undo", "four")["tested"]


@pytest.mark.campaign
def test_tasks_that_build_on_it_are_named_and_undone_first(crew: Crew) -> None:
    crew.add("six", "seven", depends_on="two")
    crew.add("eight", depends_on="six")
    crew.add("open", depends_on="two")
    for task in ("six", "seven", "eight"):
        merge_by_hand(crew, task)
    before = picture(crew)
    printed = crew.liza("undo", "two", code=1)
    assert "eight, seven, six build on two" in printed
    assert "liza undo eight" in printed
    assert picture(crew) == before
    for task in ("eight", "seven", "six"):
        assert crew.json("undo", task)["waiting"] == []
    printed = crew.liza("undo", "two")
    assert "open depends on it and waits" in printed
    assert files_of(crew) == {"one", "three", "four", "five"}
    assert "open can never be claimed: it depends on two" in crew.liza("status")
    # Another task takes its place: what depends on it goes on.
    crew.add("again")
    crew.liza("task", "supersede", "two", "--by", "again", "--because", "the second try")
    merge_by_hand(crew, "again", two="better\n")
    merge_by_hand(crew, "open")
    assert files_of(crew) == {"one", "two", "three", "four", "five", "open"}
    assert crew.json("validate")["valid"]


@pytest.mark.campaign
def test_a_conflicting_undo_names_files_and_later_tasks(crew: Crew) -> None:
    crew.add("six", "seven")
    merge_by_hand(crew, "six", one="rewritten\n")
    merge_by_hand(crew, "seven", one="rewritten again\n", other="x\n")
    before, tip = picture(crew), crew.git("rev-parse", "integration")
    printed = crew.liza("undo", "one", code=3)
    assert "one.txt changed since its merge, by seven, six" in printed
    assert "liza undo seven" in printed
    assert picture(crew) == before
    assert crew.git("rev-parse", "integration") == tip
    for task in ("seven", "six", "one"):
        crew.liza("undo", task)
    assert files_of(crew) == {"two", "three", "four", "five"}


@pytest.mark.campaign
def test_an_undo_beside_a_running_crew_disturbs_no_agent(crew: Crew) -> None:
    crew.add("six")
    crew.gate("gate")
    coder = crew.agent("coder-2", crew.script("slow", 'echo > "$NOTES/at-work"; cat "$NOTES/gate"\n' + WORK))
    crew.agent("code-reviewer-1", crew.script("reviewer", APPROVE))
    crew.wait_note("at-work")
    crew.liza("undo", "three", "--because", "not now")
    assert crew.task("six").run == "coder-2.1"
    crew.open_gate("gate")
    crew.wait_status("six", "MERGED")
    assert files_of(crew) == {"one", "two", "four", "five", "six"}
    assert coder.process.poll() is None


def test_a_landed_task_is_the_persons_to_revert(crew: Crew) -> None:
    crew.liza("land", "--merge")
    before = picture(crew)
    printed = crew.liza("undo", "two", code=1)
    assert "two has landed: main has its change already" in printed
    assert picture(crew) == before
    hint = printed.partition("git revert")[2].splitlines()[0]
    revert, _, sync = f"git revert{hint}".partition(" && ")
    crew.git(*revert.split()[1:], "--no-edit")
    crew.liza(*sync.split()[1:])
    assert files_of(crew) == set(FIVE) - {"two"}
