"""A branch and the work tree that has it checked out move together, whoever dies on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from liza.git import branch_moves, candidates, checkout_moves, leftovers
from liza.git.checkout_moves import MoveOutcome
from liza.git.runner import Git
from liza.model.errors import GitFailed, Refused
from liza.model.value_classes import asdict
from tests.campaign import forks
from tests.conftest import commit_all, git, variant


@dataclass(frozen=True)
class Merge:
    """A repository with integration checked out, and a candidate for it that changes, adds and removes files."""

    repo: Path
    expected: str
    candidate: str

    def advance(self) -> checkout_moves.AdvanceResult:
        return branch_moves.advance_branch(Git(self.repo), "integration", self.candidate, self.expected)

    def killed(self, point: str) -> None:
        assert forks.run(self.advance, point) == -signal.SIGKILL

    def settle(self) -> str:
        branch_moves.recover_merges(Git(self.repo), "integration")
        return git(self.repo, "rev-parse", "integration")

    def left(self) -> list[str]:
        return [path.name for pattern in ("*.lock", "liza-move*") for path in (self.repo / ".git").rglob(pattern)]


@pytest.fixture
def merge(repo: Path) -> Merge:
    commit_all(repo, "second", {"gone.txt": "gone\n", "place": "a file\n"})
    git(repo, "branch", "integration")
    git(repo, "switch", "-q", "-c", "task/t")
    (repo / "README.md").write_text("# A better project\n")
    (repo / "gone.txt").unlink()
    (repo / "place").unlink()
    (repo / "place").mkdir()
    (repo / "place" / "new.txt").write_text("new\n")
    (repo / "README.md").chmod(0o755)
    commit_all(repo, "work")
    git(repo, "switch", "-q", "integration")
    expected = git(repo, "rev-parse", "integration")
    made = candidates.build_candidate(Git(repo), git(repo, "rev-parse", "task/t"), expected, "Merge t: work", "t")
    return Merge(repo, expected, made)


@pytest.mark.parametrize(
    ("point", "moved"),
    [
        ("move.intent", False),
        ("move.locked", False),
        variant("git.read-tree", False),
        variant("move.branch", True),
        variant("move.index", True),
        variant("move.unlocked", True),
    ],
)
def test_merger_killed_at_any_step_moves_checkout_whole_or_not(merge: Merge, point: str, moved: bool) -> None:
    (merge.repo / "mine.txt").write_text("mine\n")
    merge.killed(point)
    assert merge.settle() == (merge.candidate if moved else merge.expected)
    assert merge.settle() == (merge.candidate if moved else merge.expected)
    assert git(merge.repo, "status", "--porcelain") == "?? mine.txt"
    assert merge.left() == []
    if not moved:
        assert merge.advance().outcome is MoveOutcome.MOVED
        assert git(merge.repo, "status", "--porcelain") == "?? mine.txt"


def test_a_half_moved_checkout_is_repaired_also_without_its_lock(
    merge: Merge,
) -> None:
    merge.killed("git.read-tree")
    assert subprocess.run(["git", "commit", "-qam", "mine"], cwd=merge.repo, capture_output=True).returncode != 0
    (merge.repo / ".git" / "index.lock").unlink()
    assert git(merge.repo, "status", "--porcelain") != ""
    assert merge.settle() == merge.expected
    assert git(merge.repo, "status", "--porcelain") == ""
    assert merge.left() == []


def test_only_half_written_and_absent_files_count_as_progress(merge: Merge) -> None:
    merge.killed("git.read-tree")
    (merge.repo / "README.md").write_text("# A bet")
    (merge.repo / "place" / "new.txt").unlink()
    (merge.repo / "gone.txt").write_text("not quite gone\n")
    assert merge.settle() == merge.expected
    assert (merge.repo / "README.md").read_text() == "# A project\n"
    assert git(merge.repo, "status", "--porcelain") == " M gone.txt"
    assert (merge.repo / "gone.txt").read_text() == "not quite gone\n"


def test_a_file_changed_after_a_killed_move_stays_and_blocks(merge: Merge) -> None:
    merge.killed("move.branch")
    (merge.repo / "README.md").write_text("mine\n")
    assert merge.settle() == merge.expected
    assert (merge.repo / "README.md").read_text() == "mine\n"
    assert git(merge.repo, "status", "--porcelain") == " M README.md"
    found = merge.advance()
    assert (found.outcome, found.files) == (MoveOutcome.WAITING, ("README.md",))
    assert merge.left() == []


def test_a_persons_git_in_the_checkout_is_awaited_then_named(merge: Merge) -> None:
    merge.killed("move.intent")
    (merge.repo / ".git" / "index.lock").touch()
    with pytest.raises(Refused, match=r"another git holds .*index\.lock, or left it") as refused:
        merge.settle()
    assert refused.value.hint == f"rm {merge.repo / '.git' / 'index.lock'}"
    subprocess.run(refused.value.hint, shell=True, check=True)
    assert merge.settle() == merge.expected
    assert merge.left() == []


@pytest.mark.parametrize("how", ["deleted", "ignored"])
def test_a_deleted_or_ignored_file_blocks_and_stays_unchanged(merge: Merge, how: str) -> None:
    if how == "deleted":
        (merge.repo / "README.md").unlink()
        name = "README.md"
    else:
        (merge.repo / ".git" / "info" / "exclude").write_text("ignored\n")
        (merge.repo / "ignored").write_text("mine\n")
        git(merge.repo, "switch", "-q", "--detach", "task/t")
        (merge.repo / "ignored").rename(merge.repo.parent / "kept")
        (merge.repo / "ignored").write_text("theirs\n")
        git(merge.repo, "add", "-f", "ignored")
        git(merge.repo, "commit", "-q", "-m", "more")
        commit = git(merge.repo, "rev-parse", "HEAD")
        git(merge.repo, "switch", "-q", "integration")
        (merge.repo.parent / "kept").rename(merge.repo / "ignored")
        made = candidates.build_candidate(Git(merge.repo), commit, merge.expected, "Merge u: more", "u")
        merge = Merge(merge.repo, merge.expected, made)
        name = "ignored"
    found = merge.advance()
    assert (found.outcome, found.files) == (MoveOutcome.WAITING, (name,))
    assert git(merge.repo, "rev-parse", "integration") == merge.expected
    assert not (merge.repo / name).exists() if how == "deleted" else (merge.repo / name).read_text() == "mine\n"


def test_a_file_that_was_only_touched_does_not_block(merge: Merge) -> None:
    os.utime(merge.repo / "README.md", (1, 1))
    assert merge.advance().outcome is MoveOutcome.MOVED
    assert git(merge.repo, "status", "--porcelain") == ""


@pytest.mark.parametrize("name", ["refs/heads/integration", "HEAD", "packed-refs"])
def test_only_the_lock_of_a_killed_git_is_removed(repo: Path, name: str) -> None:
    git(repo, "branch", "integration")
    lock = repo / ".git" / f"{name}.lock"
    lock.touch()
    long_ago = time.time() - 60
    os.utime(lock, (long_ago, long_ago))
    living = subprocess.Popen(["git", "cat-file", "--batch"], cwd=repo, stdin=subprocess.PIPE)
    assert leftovers.remove_stale_locks(Git(repo), ("refs/heads/integration",)) == ()
    assert living.stdin is not None
    living.stdin.close()
    living.wait()
    assert leftovers.remove_stale_locks(Git(repo), ("refs/heads/integration",)) == (str(lock),)
    assert not lock.exists()


def test_a_killed_gits_lock_from_the_future_is_removed(repo: Path) -> None:
    git(repo, "branch", "integration")
    lock = repo / ".git" / "refs/heads/integration.lock"
    lock.touch()
    future = time.time() + 10 * 365 * 86400
    os.utime(lock, (future, future))
    assert leftovers.remove_stale_locks(Git(repo), ("refs/heads/integration",)) == (str(lock),)


def test_a_planted_merge_record_names_commits_or_is_none(merge: Merge, tmp_path: Path) -> None:
    precious, place = tmp_path / "precious", tmp_path / "place"
    precious.write_text("x\n")
    git(merge.repo, "switch", "-q", "main")
    git(merge.repo, "worktree", "add", "-q", str(place), "integration")
    (admin,) = (merge.repo / ".git" / "worktrees").iterdir()
    tip = git(merge.repo, "rev-parse", "integration")
    move = checkout_moves.BranchMove("integration", f"--output={precious}", tip)
    (admin / "liza-move").write_text(json.dumps(asdict(move)))
    with pytest.raises(GitFailed) as caught:
        merge.settle()
    assert caught.value.hint == f"rm {admin / 'liza-move'}"
    assert precious.read_text() == "x\n"


@pytest.mark.campaign
@pytest.mark.parametrize(("point", "back"), [("git.read-tree", False), ("move.branch", True)])
def test_a_killed_put_back_leaves_branch_and_files_in_agreement(merge: Merge, point: str, back: bool) -> None:
    assert merge.advance().outcome is MoveOutcome.MOVED

    def put_back() -> bool:
        return branch_moves.move_branch_back(Git(merge.repo), "integration", merge.candidate, merge.expected)

    assert forks.run(put_back, point) == -signal.SIGKILL
    checkout_moves.recover_move(Git(merge.repo))
    assert git(merge.repo, "rev-parse", "integration") == (merge.expected if back else merge.candidate)
    assert git(merge.repo, "status", "--porcelain") == ""
    assert merge.left() == []


def test_a_branch_deleted_during_a_killed_move_is_repaired(merge: Merge) -> None:
    merge.killed("git.read-tree")
    git(merge.repo, "update-ref", "-d", "refs/heads/integration")
    branch_moves.recover_merges(Git(merge.repo), "integration")
    assert (merge.repo / "README.md").read_text() == "# A project\n"
    assert merge.left() == []
