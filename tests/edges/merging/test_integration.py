"""Integration moved, or deleted, by hands that are not Liza's: told, with both ways on, and never accepted silently."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from functools import partial
from pathlib import Path

import pytest

from liza.crew.crew import Crew, find_crew
from liza.git import branch_moves, integration_tip
from liza.landing.sync import sync
from liza.merging import drift
from liza.merging.merge import merge
from liza.merging.rules.repository_drift import RepositoryDrift
from liza.model.errors import Missing, Refused
from liza.recovery.recover import recover_crew
from liza.tasks.claim import claim
from liza.tasks.diff import diff
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.submit import submit
from liza.tasks.task import add
from liza.tasks.verdict import verdict
from tests.campaign import forks
from tests.conftest import commit_all, git, variant
from tests.edges.merge_crew import prepared


def claimed(crew: Crew, task: str = "c") -> Path:
    """A task with a commit on its branch that is merged nowhere; its worktree."""
    add(crew, [TaskFields(task, "Write", "it is there", f"{task}.txt", "README.md")])
    claim(crew, "coder-1", task)
    there = crew.paths.task_link(task).resolve()
    commit_all(there, f"work on {task}", {f"{task}.txt": "x\n"})
    return there


def approved(crew: Crew, task: str) -> None:
    """A task from words to its approval, by hand."""
    there = claimed(crew, task)
    with chdir(there):
        submit(find_crew(crew.paths.root))
    verdict(crew, "approve", "seen", task_id=task)


def work(crew: Crew, task: str) -> None:
    """A task from words to merge, by hand."""
    approved(crew, task)
    merge(crew, task)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crew that has merged the tasks a and b, made once and copied for each test."""
    with prepared(tmp_path_factory) as root:
        for task in ("a", "b"):
            work(find_crew(root), task)
        return root


@pytest.fixture
def crew(made: Path, tmp_path: Path) -> Crew:
    root = tmp_path / "repo"
    shutil.copytree(made, root, symlinks=True)
    shutil.copytree(made.with_name("repo.worktrees"), tmp_path / "repo.worktrees", symlinks=True)
    return find_crew(root)


def looked(crew: Crew) -> RepositoryDrift:
    return drift.detect_drift(crew, crew.board.read())


def tip(crew: Crew, name: str = "integration") -> str:
    return git(crew.paths.root, "rev-parse", name)


def typed(crew: Crew, command: str) -> None:
    """A hint of git's, as a person copies it."""
    assert command.startswith("git ")
    git(crew.paths.root, *command.split()[1:])


def commit_on_integration(crew: Crew, there: Path) -> None:
    git(crew.paths.root, "worktree", "add", "-q", str(there), "integration")
    git(there, "commit", "-q", "--allow-empty", "-m", "by hand")


def test_moving_integration_back_names_lost_tasks_and_both_remedies(crew: Crew) -> None:
    before = tip(crew)
    assert looked(crew) == RepositoryDrift()
    git(crew.paths.root, "branch", "-f", "integration", "main")
    seen = looked(crew)
    assert seen.moved == (
        f"integration was moved outside of liza, from {before[:10]} back to {tip(crew)[:10]}: "
        "2 merged tasks are not in it any more: a, b"
    )
    assert seen.lost == ("a", "b")
    back, _, accept = seen.ways.partition(", or to accept it: ")
    assert (back, accept) == (f"git branch -f integration {before[:12]}", "liza sync --accept-moved")
    typed(crew, back)
    assert (tip(crew), looked(crew)) == (before, RepositoryDrift())


def test_integration_moved_back_to_an_earlier_merge_is_an_alarm(crew: Crew) -> None:
    git(crew.paths.root, "branch", "-f", "integration", "integration~1")
    assert "back to" in str(looked(crew).moved)
    assert looked(crew).lost == ("b",)


def test_a_sync_loses_merged_tasks_only_on_request(crew: Crew) -> None:
    before = tip(crew)
    git(crew.paths.root, "branch", "-f", "integration", "main")
    with pytest.raises(Refused, match="2 merged tasks are not in it any more: a, b") as refused:
        sync(crew)
    assert f"git branch -f integration {before[:12]}" in refused.value.hint
    assert looked(crew).lost
    said = sync(crew, accept_moved=True)
    assert said.result == "changed"
    assert said.details["accepted"] == {"from": before, "to": tip(crew, "main"), "lost": ("a", "b")}
    assert "accepted: integration was moved outside of liza" in said.message
    assert "stay merged on the board" in crew.paths.alerts.read_text()
    assert looked(crew) == RepositoryDrift()
    assert sync(crew).details["accepted"] is None
    mine = git(crew.paths.root, "commit-tree", f"{before}^{{tree}}", "-p", before, "-m", "onto what was given up")
    git(crew.paths.root, "branch", "-f", "integration", before)
    assert looked(crew) == RepositoryDrift()
    git(crew.paths.root, "branch", "-f", "integration", mine)
    assert looked(crew).ways == "liza sync"


def test_sync_of_a_branch_with_the_lost_tasks_restores_them(crew: Crew) -> None:
    git(crew.paths.root, "branch", "kept", "integration")
    git(crew.paths.root, "branch", "-f", "integration", "main")
    said = sync(crew, "kept")
    assert said.details["accepted"]["lost"] == ()
    assert git(crew.paths.root, "show", "integration:b.txt") == "x"
    assert looked(crew) == RepositoryDrift()


def test_a_persons_commit_is_named_and_accepted_by_a_sync(crew: Crew, tmp_path: Path) -> None:
    before = tip(crew)
    commit_on_integration(crew, tmp_path / "mine")
    seen = looked(crew)
    assert f"from {before[:10]} on to {tip(crew)[:10]}: 1 commit is new, without a verdict: " in str(seen.moved)
    assert "Test Person: by hand" in str(seen.moved)
    assert seen.ways == f"liza sync, or to go back: git -C {tmp_path / 'mine'} reset --keep {before[:12]}"
    assert "by hand" in sync(crew).message
    assert looked(crew) == RepositoryDrift()


def test_a_checked_out_integration_is_accepted_by_a_sync(crew: Crew) -> None:
    git(crew.paths.root, "switch", "-q", "integration")
    with pytest.raises(Refused, match="itself is checked out"):
        sync(crew)
    before = tip(crew)
    git(crew.paths.root, "reset", "-q", "--hard", "main")
    with pytest.raises(Refused, match="a, b") as refused:
        sync(crew)
    typed(crew, refused.value.hint.partition(", or")[0])
    assert (tip(crew), git(crew.paths.root, "status", "--porcelain")) == (before, "")
    git(crew.paths.root, "commit", "-q", "--allow-empty", "-m", "mine")
    assert "Test Person: mine" in sync(crew).message
    assert looked(crew) == RepositoryDrift()


@pytest.mark.campaign
def test_merging_does_not_hide_the_loss_of_earlier_tasks(crew: Crew) -> None:
    before = tip(crew)
    git(crew.paths.root, "branch", "-f", "integration", "main")
    work(crew, "c")
    assert looked(crew).lost == ("a", "b")
    assert "without a verdict" not in str(looked(crew).moved)
    way = f"git branch integration-before {before[:12]} && liza sync integration-before"
    assert looked(crew).ways.startswith(way)
    work(crew, "d")
    assert crew.paths.alerts.read_text().count("was merged onto less than had been merged") == 1
    git(crew.paths.root, "branch", "integration-before", before)
    sync(crew, "integration-before")
    assert looked(crew) == RepositoryDrift()
    names = git(crew.paths.root, "ls-tree", "--name-only", "integration").split()
    assert {"a.txt", "b.txt", "c.txt", "d.txt"} <= set(names)


def test_a_rewritten_integration_names_lost_and_new_commits(crew: Crew) -> None:
    git(crew.paths.root, "branch", "-f", "integration", "integration~1")
    new = git(crew.paths.root, "commit-tree", "integration^{tree}", "-p", "integration", "-m", "instead of b")
    git(crew.paths.root, "update-ref", "refs/heads/integration", new)
    told = str(looked(crew).moved)
    assert "1 merged task is not in it any more: b. 1 commit is new, without a verdict: " in told
    assert "instead of b" in told
    assert " back " not in told


def test_every_step_needing_a_deleted_integration_names_the_remedy(crew: Crew) -> None:
    before = tip(crew)
    add(crew, [TaskFields("c", "Write", "it is there", "c.txt", "README.md")])
    claim(crew, "coder-1", "c")
    git(crew.paths.root, "branch", "-D", "integration")
    assert looked(crew).moved == "the branch integration is gone"
    for step in (
        lambda: sync(crew),
        lambda: merge(crew),
        lambda: diff(crew, "c"),
        lambda: recover_crew(crew, "doctor"),
        lambda: integration_tip.require_integration(crew.git, crew.board.read()),
    ):
        with pytest.raises(Missing, match="the branch integration is gone") as gone:
            step()
        assert gone.value.hint == f"git branch integration {before[:12]}"
    git(crew.paths.root, "update-ref", "-d", branch_moves.LAST_INTEGRATION_REF)
    assert looked(crew).ways == f"git branch integration {before[:12]}"
    typed(crew, looked(crew).ways)
    assert looked(crew) == RepositoryDrift()
    assert recover_crew(crew, "doctor") == ()


def stopped(work: Callable[[], object], point: str) -> int:
    """A process of its own that does ``work`` and has stopped at this point; its pid."""
    pid = forks.fork(work, fault=f"{point}:stop")
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1]), f"{point} was not passed"
    return pid


@contextmanager
def standing(work: Callable[[], object], point: str) -> Iterator[Callable[[], None]]:
    """A process of its own that does ``work`` and stands at this point until the call that is given, or the end."""
    pids = [stopped(work, point)]

    def resume() -> None:
        os.kill(pids[0], signal.SIGCONT)
        assert forks.ended(pids.pop()) == 0

    try:
        yield resume
    finally:
        for pid in pids:
            forks.kill(pid)


def seen_beside(crew: Crew, merging: Callable[[], object], moved: str, point: str, notes: Path) -> str:
    """What a look for drift finds that began when a merge had moved integration, and was at ``point`` when it ended."""
    found = notes / "found"
    look = partial(_write_drift, crew, found)
    with standing(merging, moved) as resume_merge, standing(look, point) as resume_look:
        resume_merge()
        resume_look()
    return found.read_text()


def _merge_afresh(root: Path, task: str) -> object:
    return merge(find_crew(root), task)


def _write_drift(crew: Crew, to: Path) -> None:
    to.write_text(repr(drift.find_integration_drift(crew)))


def points_of_a_look(crew: Crew, notes: Path) -> list[str]:
    """The points that a look for drift passes beside a merge that has moved integration."""
    approved(crew, "first")
    with standing(partial(_merge_afresh, crew.paths.root, "first"), "merge.advanced") as resume:
        forks.run(lambda: drift.find_integration_drift(crew), trace=notes / "trace")
        resume()
    return forks.passed(notes / "trace")


@pytest.mark.parametrize("points", [["git.log#1"], variant([], name="every point")])
def test_no_merge_of_liza_looks_like_a_move_from_outside(crew: Crew, tmp_path: Path, points: list[str]) -> None:
    (tmp_path / "notes").mkdir()
    for number, point in enumerate(points or points_of_a_look(crew, tmp_path / "notes")):
        task = f"c{number}"
        approved(crew, task)
        found = seen_beside(
            crew, lambda task=task: merge(find_crew(crew.paths.root), task), "merge.advanced", point, tmp_path / "notes"
        )
        assert (point, found) == (point, "None")


@pytest.mark.parametrize("point", ["git.rev-parse#2", *map(variant, ("git.for-each-ref#2", "git.log#1", "git.log#2"))])
def test_no_sync_looks_like_a_move_from_outside(crew: Crew, tmp_path: Path, point: str) -> None:
    (tmp_path / "notes").mkdir()
    git(crew.paths.root, "commit", "-q", "--allow-empty", "-m", "by the person")
    # The first one protects the candidate, the second one says that it may be published.
    assert seen_beside(crew, lambda: sync(crew, "main"), "git.update-ref#3", point, tmp_path / "notes") == "None"


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def _no_git(*words: object, **_: object) -> None:
    raise AssertionError(f"a git was run: {words}")
