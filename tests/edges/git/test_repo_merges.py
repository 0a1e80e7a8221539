"""Candidates are made without a checkout, and a branch moves with its checkout or not at all."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from liza.git import branch_moves, candidates, git_refs
from liza.git.branch_moves import AdvanceResult
from liza.git.checkout_moves import MoveOutcome
from liza.git.runner import Git, GitResult
from liza.model import targets
from liza.model.errors import GitFailed, MergeConflict, Missing, Refused
from tests.conftest import commit_all, git


@pytest.fixture
def work(repo: Path) -> tuple[str, str]:
    """(tip of integration, a commit of a task that adds new.txt and changes README.md)."""
    git(repo, "branch", "integration")
    git(repo, "checkout", "-q", "-b", "task/t")
    commit = commit_all(repo, "work", {"README.md": "# A better project\n", "new.txt": "new\n"})
    git(repo, "checkout", "-q", "main")
    return git(repo, "rev-parse", "integration"), commit


def made(repo: Path, work: tuple[str, str]) -> str:
    return candidates.build_candidate(Git(repo), work[1], work[0], "Merge t: a better project", "t")


def test_a_candidate_has_both_parents_and_is_kept_by_ref(repo: Path, work: tuple[str, str]) -> None:
    candidate = made(repo, work)
    assert git(repo, "log", "-1", "--format=%P%n%s", candidate).split("\n") == [
        f"{work[0]} {work[1]}",
        "Merge t: a better project",
    ]
    assert git(repo, "rev-parse", "refs/liza/candidates/t") == candidate
    assert git(repo, "status", "--porcelain") == ""
    assert git(repo, "branch", "--format=%(refname:short)").split() == ["integration", "main", "task/t"]
    assert not branch_moves.contains(Git(repo), "integration", work[1])
    candidates.delete_candidate(Git(repo), "t")
    candidates.delete_candidate(Git(repo), "t")
    assert git(repo, "for-each-ref", "refs/liza") == ""


def test_a_conflict_names_files_of_any_name(repo: Path, work: tuple[str, str]) -> None:
    name = "two\nlines ü.txt"
    tips = []
    for text in ("ours\n", "theirs\n"):
        git(repo, "checkout", "-q", "--detach", work[0])
        commit_all(repo, text, {name: text, "README.md": text})
        tips.append(git(repo, "rev-parse", "HEAD"))
    with pytest.raises(MergeConflict) as caught:
        candidates.build_candidate(Git(repo), tips[1], tips[0], "Merge t: x", "t")
    assert caught.value.files == ("README.md", name)
    assert git(repo, "for-each-ref", "refs/liza") == ""


def test_a_missing_commit_is_a_failure_and_no_conflict(repo: Path, work: tuple[str, str]) -> None:
    with pytest.raises(GitFailed) as caught:
        candidates.build_candidate(Git(repo), "1" * 40, work[0], "Merge t: x", "t")
    assert not isinstance(caught.value, MergeConflict)
    with pytest.raises(GitFailed):
        branch_moves.contains(Git(repo), "no-such-branch", work[1])


def test_an_absent_branch_moves_and_a_second_swap_is_lost(repo: Path, work: tuple[str, str]) -> None:
    candidate = made(repo, work)
    assert branch_moves.advance_branch(Git(repo), "integration", candidate, work[0]) == AdvanceResult(MoveOutcome.MOVED)
    assert branch_moves.contains(Git(repo), "integration", work[1])
    assert branch_moves.advance_branch(Git(repo), "integration", candidate, work[0]) == AdvanceResult(MoveOutcome.MOVED)
    other = candidates.build_candidate(Git(repo), work[1], work[0], "Merge u: another", "u")
    assert branch_moves.advance_branch(Git(repo), "integration", other, work[0]) == AdvanceResult(MoveOutcome.LOST)
    assert git(repo, "rev-parse", "integration") == candidate
    assert git(repo, "status", "--porcelain") == ""


def test_a_move_also_updates_files_of_a_persons_checkout(repo: Path, work: tuple[str, str]) -> None:
    candidate = made(repo, work)
    git(repo, "checkout", "-q", "integration")
    git(repo, "config", "branch.integration.mergeOptions", "--no-ff")
    git(repo, "config", "merge.autoStash", "true")
    (repo / "mine.txt").write_text("mine\n")
    assert branch_moves.advance_branch(Git(repo), "integration", candidate, work[0]).outcome is MoveOutcome.MOVED
    assert git(repo, "rev-parse", "HEAD") == candidate
    assert git(repo, "status", "--porcelain") == "?? mine.txt"
    assert (repo / "new.txt").read_text() == "new\n"


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["README.md", "new.txt"])
def test_a_merge_waits_for_blocking_changes_and_keeps_them(repo: Path, work: tuple[str, str], name: str) -> None:
    candidate = made(repo, work)
    git(repo, "checkout", "-q", "integration")
    git(repo, "config", "merge.autoStash", "true")
    (repo / name).write_text("mine\n")
    found = branch_moves.advance_branch(Git(repo), "integration", candidate, work[0])
    assert (found.outcome, found.files, found.checkout) == (MoveOutcome.WAITING, (name,), repo)
    assert (repo / name).read_text() == "mine\n"
    assert git(repo, "rev-parse", "integration") == work[0]
    (repo / name).unlink()
    git(repo, "checkout", "-q", "--", ".")
    assert branch_moves.advance_branch(Git(repo), "integration", candidate, work[0]).outcome is MoveOutcome.MOVED


def test_a_branch_with_two_checkouts_waits_until_one_has_left(
    repo: Path, work: tuple[str, str], tmp_path: Path
) -> None:
    candidate = made(repo, work)
    for name in ("one", "two words"):
        git(repo, "worktree", "add", "-q", "--force", str(tmp_path / name), "integration")
    with pytest.raises(Missing, match="only one can move with it") as refusal:
        branch_moves.advance_branch(Git(repo), "integration", candidate, work[0])
    assert git(repo, "rev-parse", "integration") == work[0]
    subprocess.run(shlex.split(refusal.value.hint), check=True, capture_output=True)
    assert branch_moves.advance_branch(Git(repo), "integration", candidate, work[0]).outcome is MoveOutcome.MOVED


EDIT = "GIT_SEQUENCE_EDITOR='sed -i 1s/pick/edit/' git rebase -i"
TOP = "git switch -q -c top; git commit -q --allow-empty -m top"
OPERATIONS = {
    "a rebase": (f"{EDIT} HEAD~1", "a rebase is in progress in", "git rebase --continue"),
    "a rebase by patches": ("git rebase --apply side", "a.txt has conflicts", "git add a.txt && git rebase --continue"),
    "a rebase of a branch above it": (f"{TOP}; {EDIT} --update-refs HEAD~2", "a rebase", "git rebase --continue"),
    "a revert": ("echo 3 > a.txt; git commit -qam 3; git revert HEAD~1", "a revert is in progress in", "--abort"),
    "a merge": ("git merge side", "a merge is in progress in", "git merge --abort"),
    "stash pop": ("echo 9 > a.txt; git stash -q; echo 8 > a.txt; git commit -qam 8; git stash pop", "a.txt", "restore"),
}
"""The commands, and what is said."""


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("linked", [False, True])
def test_a_branch_in_an_unfinished_operation_does_not_move(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, linked: bool
) -> None:
    """A rebase detaches HEAD, and puts the branch to its own commit at the end or at its abort."""
    commands, text, step = OPERATIONS[name]
    for branch, content in (("side", "1"), ("integration", "2")):
        git(repo, "switch", "-q", "-c", branch, "main")
        (repo / "a.txt").write_text(content)
        git(repo, "add", "a.txt")
        git(repo, "commit", "-q", "-m", branch)
    checkout = repo
    if linked:
        checkout = tmp_path / "linked"
        git(repo, "switch", "-q", "main")
        git(repo, "worktree", "add", "-q", str(checkout), "integration")
    subprocess.run(commands, shell=True, cwd=checkout, capture_output=True)
    tip = git(repo, "rev-parse", "integration")
    tree = git(repo, "rev-parse", "integration^{tree}")
    candidate = git(repo, "commit-tree", tree, "-p", tip, "-m", "candidate")
    status = git(checkout, "status", "--porcelain")
    monkeypatch.chdir(checkout)
    with pytest.raises(Refused, match="integration could not be moved: ") as refused:
        branch_moves.advance_branch(Git(repo), "integration", candidate, tip)
    assert text in refused.value.message
    assert step in refused.value.hint
    assert git(repo, "rev-parse", "integration") == tip
    assert git(checkout, "status", "--porcelain") == status
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Refused) as refused:
        branch_moves.advance_branch(Git(repo), "integration", candidate, tip)
    assert refused.value.hint.startswith(f"cd {checkout} && git ")


@pytest.mark.parametrize("lock", ["index.lock", "refs/heads/integration.lock"])
def test_a_lock_from_a_killed_git_is_removed_or_named(repo: Path, work: tuple[str, str], lock: str) -> None:
    candidate = made(repo, work)
    git(repo, "checkout", "-q", "integration")
    path = repo / ".git" / lock
    path.touch()
    os.utime(path, (0, 0))
    if lock == "index.lock":
        with pytest.raises(GitFailed, match="or left it when it was killed") as refused:
            branch_moves.advance_branch(Git(repo), "integration", candidate, work[0])
        subprocess.run(shlex.split(refused.value.hint), check=True)
    assert branch_moves.advance_branch(Git(repo), "integration", candidate, work[0]).outcome is MoveOutcome.MOVED


def test_a_commit_in_a_checkout_meanwhile_is_a_lost_swap(repo: Path, work: tuple[str, str]) -> None:
    candidate = made(repo, work)
    git(repo, "checkout", "-q", "integration")
    git(repo, "commit", "-q", "--allow-empty", "-m", "mine")
    assert branch_moves.advance_branch(Git(repo), "integration", candidate, work[0]).outcome is MoveOutcome.LOST


def test_a_checkout_made_during_the_move_gets_its_files(repo: Path, work: tuple[str, str]) -> None:
    candidate = made(repo, work)
    git(repo, "checkout", "-q", "integration")
    # As it is when the checkout was made after the first look and before the swap.
    git(repo, "update-ref", "refs/heads/integration", candidate)
    assert git(repo, "status", "--porcelain") != ""
    assert branch_moves.sync_checkout(Git(repo), "integration", candidate, work[0]).outcome is MoveOutcome.MOVED
    assert git(repo, "status", "--porcelain") == ""
    assert branch_moves.sync_checkout(Git(repo), "integration", candidate, work[0]).outcome is MoveOutcome.MOVED
    assert git(repo, "status", "--porcelain") == ""


def test_a_new_checkout_with_blocking_changes_turns_the_branch_back(repo: Path, work: tuple[str, str]) -> None:
    candidate = made(repo, work)
    git(repo, "checkout", "-q", "integration")
    (repo / "README.md").write_text("mine\n")
    git(repo, "update-ref", "refs/heads/integration", candidate)
    found = branch_moves.sync_checkout(Git(repo), "integration", candidate, work[0])
    assert found.outcome is MoveOutcome.WAITING
    assert "README.md" in found.files
    assert git(repo, "rev-parse", "integration") == work[0]
    assert (repo / "README.md").read_text() == "mine\n"
    assert git(repo, "status", "--porcelain") == " M README.md"


def test_only_a_living_linked_worktree_of_a_branch_is_found(repo: Path, work: tuple[str, str], tmp_path: Path) -> None:
    candidate = made(repo, work)
    git(repo, "worktree", "add", "-q", str(tmp_path / "w"), "integration")
    found = branch_moves.advance_branch(Git(repo), "integration", candidate, work[0])
    assert (found.outcome, found.checkout) == (MoveOutcome.MOVED, tmp_path / "w")
    assert (tmp_path / "w" / "new.txt").exists()
    (tmp_path / "w").rename(tmp_path / "gone")
    again = candidates.build_candidate(Git(repo), git(repo, "rev-parse", "main"), candidate, "Merge u: x", "u")
    assert branch_moves.advance_branch(Git(repo), "integration", again, candidate) == AdvanceResult(MoveOutcome.MOVED)


def test_a_persons_checkout_gets_as_much_time_as_a_slot(
    repo: Path, work: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    candidate = made(repo, work)
    git(repo, "checkout", "-q", "integration")
    limits: dict[str, float] = {}
    spawn = Git._spawn

    def spy(self: Git, args: Sequence[str], stdin: bytes | None, env: Mapping[str, str], timeout: float) -> GitResult:
        limits[args[0]] = timeout
        return spawn(self, args, stdin, env, timeout)

    monkeypatch.setattr(Git, "_spawn", spy)
    assert branch_moves.advance_branch(Git(repo), "integration", candidate, work[0]).outcome is MoveOutcome.MOVED
    assert {name: limits[name] for name in ("read-tree", "update-index")} == {"read-tree": 1800, "update-index": 1800}


def test_a_branch_returns_only_from_an_unchanged_untested_candidate(repo: Path, work: tuple[str, str]) -> None:
    candidate = made(repo, work)
    git(repo, "checkout", "-q", "integration")
    assert not branch_moves.move_branch_back(Git(repo), "integration", candidate, work[0])
    git(repo, "merge", "-q", "--ff-only", candidate)
    (repo / "README.md").write_text("mine\n")
    assert not branch_moves.move_branch_back(Git(repo), "integration", candidate, work[0])
    assert (git(repo, "rev-parse", "integration"), (repo / "README.md").read_text()) == (candidate, "mine\n")
    git(repo, "checkout", "-q", "README.md")
    assert branch_moves.move_branch_back(Git(repo), "integration", candidate, work[0])
    assert (git(repo, "rev-parse", "integration"), git(repo, "status", "--porcelain")) == (work[0], "")
    assert not (repo / "new.txt").exists()


@pytest.mark.parametrize("name", ["a\u2028b", "a\x85b"])
def test_a_ref_name_with_a_line_separator_is_one_ref(repo: Path, work: tuple[str, str], name: str) -> None:
    tip, commit = work
    refs = [f"refs/liza/candidates/{name}", f"refs/heads/task/{name}"]
    before = git_refs.snapshot_refs(Git(repo))
    for ref in refs:
        git(repo, "update-ref", ref, commit)
    assert candidates.list_candidates(Git(repo)) == {name: commit}
    assert {change.name for change in git_refs.find_ref_changes(Git(repo), before, tip)} == set(refs)
    branch_moves.recover_merges(Git(repo), "integration")


def test_a_candidate_without_parents_stops_no_merge(repo: Path, work: tuple[str, str]) -> None:
    root = git(repo, "rev-list", "--max-parents=0", "integration")
    assert git(repo, "rev-parse", "integration") == root
    git(repo, "update-ref", candidates.candidate_ref("x"), root)
    branch_moves.recover_merges(Git(repo), "integration")
    assert git(repo, "rev-parse", "integration") == root


@pytest.mark.sample(12)
@pytest.mark.parametrize(
    "name",
    [
        "main", "release/1.0", "a..b", "a.", ".a", "a/.b", "a.lock", "a.lock/b", "a.locks", "a~1", "a^", "a:b", "a?",
        "a*", "a[", "a]", "a\\b", "a@{b", "a@b", "-a", "a-", "a b", "a\tb", "a//b", "/a", "a/",
        "HEADS", "\u00e4/\u00f6", "../x", "x/../y", "", "HEAD", "a\x7f", "a\n", "a.lock\n",
    ],
)  # fmt: skip
def test_a_task_can_name_exactly_those_branches_git_accepts(repo: Path, name: str) -> None:
    is_accepted = Git(repo).run("check-ref-format", "--branch", name).code == 0
    assert (targets.is_target_name(name), targets.is_branch_name(name)) == (is_accepted, is_accepted)


@pytest.mark.parametrize("name", ["a\u00a0b", "a\u200bb", "refs/x", "task/x", "epic/x"])
def test_a_valid_branch_name_need_not_suit_a_task(repo: Path, name: str) -> None:
    assert Git(repo).run("check-ref-format", "--branch", name).code == 0
    assert (targets.is_target_name(name), targets.is_branch_name(name)) == (False, True)
