"""The judge of the campaigns can fail: it is silent about a healthy crew and reports each defect that is planted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.campaign.consistency import commits_of_everyone, problems
from tests.conftest import git, worktree_of
from tests.journeys.crews import Crew, project, started


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    """One task is merged, one is claimed with a file of work in its worktree, one waits."""
    with started(tmp_path, inside=True) as made:
        made.work_by_hand("first")
        made.liza("submit", cwd=worktree_of(made.root, "first"))
        made.liza("verdict", "approve", "fine", "--task", "first")
        made.liza("merge")
        made.work_by_hand("second")
        made.add("third")
        yield made


def _edit(crew: Crew, old: str, new: str) -> None:
    text = crew.paths.state.read_text()
    assert old in text
    crew.paths.state.write_text(text.replace(old, new, 1))


def _owner(crew: Crew, **words: object) -> None:
    place = crew.root / ".git" / "worktrees" / "s1" / "liza"
    place.write_text(json.dumps({**json.loads(place.read_text()), **words}))


def _reserve(crew: Crew) -> None:
    _edit(crew, '- id: "third"\n', '- id: "third"\n    reservation: {agent: coder-3, run: coder-3.1, slot: s9}\n')


def _other_slot(crew: Crew) -> None:
    crew.git("worktree", "add", "-q", "--force", str(crew.paths.slot("s2")), "task/second")


def _half_made(crew: Crew) -> None:
    (crew.root / ".git" / "worktrees" / "s1" / "locked").write_text("initializing\n")


def _merge_again(crew: Crew) -> None:
    made = crew.git(
        "commit-tree", "integration^{tree}", "-p", "integration", "-p", "task/first", "-m", "Merge first: x"
    )
    crew.git("update-ref", "refs/heads/integration", made)


def _take_back(crew: Crew) -> None:
    crew.git("update-ref", "refs/heads/integration", "integration^1")


def _lose_last_line(crew: Crew) -> None:
    lines = crew.paths.journal.read_text().splitlines(keepends=True)
    crew.paths.journal.write_text("".join([*lines[:-3], *lines[-2:]]))


def _repeat_a_line(crew: Crew) -> None:
    lines = crew.paths.journal.read_text().splitlines(keepends=True)
    crew.paths.journal.write_text("".join([*lines[:-1], lines[-2], lines[-1]]))


DEFECTS: dict[str, tuple[Callable[[Crew], object], str]] = {
    "a reservation that nobody settles": (_reserve, "third is still reserved as coder-3.1"),
    "no link": (lambda crew: crew.paths.task_link("second").unlink(), "tasks/second does not lead to its slot"),
    "a link of a merged task": (
        lambda crew: crew.paths.task_link("first").symlink_to("../s1"),
        "tasks/first leads",
    ),
    "another run in the owner file": (lambda crew: _owner(crew, run="coder-1.9"), "its slot s1 says"),
    "another task in the owner file": (lambda crew: _owner(crew, task="first"), "s1 bears first"),
    "a finishing cut short": (lambda crew: _owner(crew, done=False), "its slot s1 says"),
    "a branch in two places": (_other_slot, "task/second is checked out in s1 and s2"),
    "a slot on no branch": (
        lambda crew: crew.git("checkout", "-q", "--detach", cwd=crew.paths.slot("s1")),
        "stands at",
    ),
    "a half-made worktree": (_half_made, "s1 is half made"),
    "a lock of a killed git": (
        lambda crew: (crew.root / ".git" / "worktrees" / "s1" / "index.lock").touch(),
        "s1 is blocked by worktrees/s1/index.lock",
    ),
    "a lock on a ref": (
        lambda crew: (crew.root / ".git" / "refs" / "heads" / "integration.lock").touch(),
        "git is blocked by refs/heads/integration.lock",
    ),
    "a branch of nobody": (lambda crew: crew.git("branch", "task/third"), "branch task/third"),
    "a run above its counter": (lambda crew: _edit(crew, "runs: 2", "runs: 1"), "coder-1.2 was there"),
    "an edit that was not noted": (lambda crew: _edit(crew, "third", "thirt"), "its sha256 is"),
    "a line of the journal gone": (_lose_last_line, "comes"),
    "a line of the journal twice": (_repeat_a_line, "is there 2 times"),
    "no history of the last revision": (
        lambda crew: crew.git("update-ref", "refs/liza/blackboard", "refs/liza/blackboard~1"),
        "history: it lacks the revisions",
    ),
    "merged twice": (_merge_again, "first is MERGED and was merged 2 times"),
    "a merge taken back": (_take_back, "first is MERGED and was merged 0 times"),
    "a candidate of nobody": (
        lambda crew: crew.git("update-ref", "refs/liza/candidates/first", "integration"),
        "a candidate of first",
    ),
}


@pytest.mark.campaign
def test_the_consistency_check_reports_every_planted_defect_and_nothing_else(crew: Crew, tmp_path: Path) -> None:
    assert problems(crew.root) == []
    missed = []
    whole = tmp_path / "whole"
    shutil.copytree(crew.root, whole, symlinks=True)
    for name, (plant, told) in DEFECTS.items():
        shutil.rmtree(crew.root)
        shutil.copytree(whole, crew.root, symlinks=True)
        plant(crew)
        found = problems(crew.root)
        if not any(told in sentence for sentence in found):
            missed.append(f"{name}: {found}")
    assert missed == []


def test_a_commit_that_no_ref_reaches_any_more_is_reported(tmp_path: Path) -> None:
    root = tmp_path / "project"
    project(root)
    git(root, "checkout", "-q", "-b", "task/second")
    git(root, "commit", "-q", "--allow-empty", "-m", "work")
    head = git(root, "rev-parse", "HEAD")
    git(root, "checkout", "-q", "-")
    assert commits_of_everyone(root, [head]) == []
    git(root, "update-ref", "-d", "refs/heads/task/second")
    assert commits_of_everyone(root, [head]) == [head]
