"""What waits to be offered to integration again is what was approved, and is merged once."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from liza.crew.crew import find_crew
from liza.merging.merge import merge
from liza.model.model import MergeInProgress
from tests.campaign import forks
from tests.conftest import git
from tests.journeys.crews import Crew, started


def _waiting(crew: Crew) -> None:
    """task-1 is approved, tested, and waits for a file that the person has changed in their checkout."""
    there = crew.work_by_hand("task-1")
    (there / "README.md").write_text("changed by task-1\n")
    git(there, "commit", "-qam", "more")
    crew.liza("submit", cwd=there)
    crew.liza("verdict", "approve", "fine", "--task", "task-1")
    git(crew.root, "switch", "-q", "integration")
    (crew.root / "README.md").write_text("mine\n")
    merge(find_crew(crew.root))
    made = crew.task("task-1").merging
    assert made is not None
    assert made.waiting == ("README.md",)


@pytest.mark.parametrize("planted", ["another commit", "a commit that is not there"])
@pytest.mark.campaign
def test_a_candidate_written_onto_the_board_is_never_offered(tmp_path: Path, planted: str) -> None:
    with started(tmp_path) as crew:
        _waiting(crew)
        before = git(crew.root, "rev-parse", "integration")
        git(crew.root, "checkout", "-q", "README.md")
        tree = git(crew.root, "rev-parse", "main^{tree}")
        evil = git(crew.root, "commit-tree", tree, "-p", before, "-m", "evil") if planted[0:2] == "an" else "1" * 40
        here = find_crew(crew.root)
        with here.change("human:test", "edit", "task-1") as tx:
            task = tx.state.task("task-1")
            assert task is not None
            tx.state = tx.state.with_task(
                replace(task, merging=MergeInProgress(candidate=evil, expected=before, waiting=("README.md",)))
            )
        merge(find_crew(crew.root))
        made = crew.task("task-1")
        assert made.status == "MERGED"
        assert (
            git(crew.root, "log", "--first-parent", "--format=%s", f"{before}..integration")
            == "Merge task-1: Write task-1"
        )


@pytest.mark.campaign
def test_a_merger_killed_after_moving_integration_merges_once(
    tmp_path: Path,
) -> None:
    with started(tmp_path) as crew:
        _waiting(crew)
        git(crew.root, "checkout", "-q", "README.md")
        assert forks.run(lambda: merge(find_crew(crew.root)), "merge.advanced") == -signal.SIGKILL
        merge(find_crew(crew.root), "task-1")
        assert crew.task("task-1").status == "MERGED"
        assert git(crew.root, "rev-list", "--merges", "--count", "integration") == "1"
        assert git(crew.root, "status", "--porcelain") == ""
        assert git(crew.root, "for-each-ref", "refs/liza/candidates") == ""
