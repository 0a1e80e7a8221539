"""Files that git-lfs stores: a commit has a pointer, and each worktree the whole file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import commit_all, git, worktree_of
from tests.journeys.crews import Crew

pytestmark = pytest.mark.needs("git-lfs")


@pytest.fixture
def crew(repo: Path, tmp_path: Path) -> Crew:
    """A crew whose tests read a picture that git-lfs stores."""
    git(repo, "lfs", "install", "--skip-repo")
    git(repo, "lfs", "track", "*.psd")
    commit_all(repo, "a picture", {"picture.psd": "first pixels\n"})
    (tmp_path / "notes").mkdir()
    crew = Crew(repo, tmp_path / "notes")
    crew.liza("init", "Draw", "--test", "grep -q pixels picture.psd")
    return crew


@pytest.mark.campaign
def test_large_files_are_whole_in_worktrees_tests_and_the_checkout(crew: Crew) -> None:
    crew.git("switch", "-q", "integration")
    crew.add("task-1")
    crew.prepare("claim", "task-1", "--agent", "coder-1")
    worktree = worktree_of(crew.root, "task-1")
    assert (worktree / "picture.psd").read_text() == "first pixels\n"
    (worktree / "picture.psd").write_text("second pixels\n")
    crew.git("commit", "-q", "-a", "-m", "another picture", cwd=worktree)
    crew.prepare("submit", cwd=worktree)
    crew.prepare("verdict", "approve", "seen", "--task", "task-1")
    crew.liza("merge", "task-1")
    assert crew.task("task-1").tested is True
    assert (crew.root / "picture.psd").read_text() == "second pixels\n"
    assert "oid sha256:" in crew.git("show", "integration:picture.psd")
    assert crew.git("status", "--porcelain", "--", "picture.psd") == ""
