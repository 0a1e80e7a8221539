"""A session in a box has git as usual, and changes nothing of the repository until its commits are imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from liza.git import run_git, run_import
from liza.model.errors import GitFailed, Refused
from liza.model.value_classes import replace
from tests.boxed_slots import BoxedSlots
from tests.conftest import commit_all, git

pytestmark = pytest.mark.needs("bwrap")


@pytest.fixture
def slots(repo: Path, tmp_path: Path) -> BoxedSlots:
    (repo / "a.txt").write_text("a\n")
    (repo / "b.txt").write_text("b\n")
    (repo / "d").mkdir()
    (repo / "d" / "c.txt").write_text("c\n")
    commit_all(repo, "files")
    return BoxedSlots(repo, tmp_path / "the slots" / "of: x").prepare()


ACTIONS = {
    "status": 'test -z "$(git status --porcelain)"',
    "commit": "echo x >> a.txt; git commit -qam x; git log -1 --format=%s | grep -x x",
    "amend": "echo x >> a.txt; git commit -qam x; git commit -q --amend -m y; git log -1 --format=%s | grep -x y",
    "stash": "echo x >> a.txt; git stash -q; git stash pop -q; git diff --quiet && exit 1; true",
    "branch": "git switch -qc other; echo x >> a.txt; git commit -qam x; git switch -q task/t; git merge -q other",
    "tag": "git tag -a v1 -m v1; git describe",
    "rebase": "echo x >> a.txt; git commit -qam x; git fetch -q liza; git rebase -q liza/integration",
    "merge": "git switch -qc o HEAD^; echo x > n; git add .; git commit -qm n; git switch -q task/t; git merge -q o",
    "cherry-pick": "git switch -qc o; echo x >> a.txt; git commit -qam x; git switch -q task/t; git cherry-pick o",
    "revert": "git revert --no-edit HEAD",
    "gc": "echo x >> a.txt; git commit -qam x; git gc -q --prune=now; git fsck; git log -1",
    "maintenance": "git maintenance run; git pack-refs --all; git repack -qad; git prune",
    "config": "git config core.hooksPath .husky && git config --get core.hooksPath",
    "hook": "mkdir .husky; printf '#!/bin/sh\\ntouch ran\\n' > .husky/pre-commit; chmod +x .husky/pre-commit;"
    "git config core.hooksPath .husky; echo x >> a.txt; git commit -qam x; test -e ran",
    "sparse": "git sparse-checkout set d; test ! -e n.txt; git sparse-checkout disable",
    "bisect": "git bisect start -q HEAD HEAD^; git bisect reset",
    "notes": "git notes add -m note; git notes show | grep note",
    "reflog": "echo x >> a.txt; git commit -qam x; git reset -q --hard HEAD@{1}; git diff --quiet",
    "rerere": "git config rerere.enabled true; git rerere status",
    "worktree": "git worktree add -q /tmp/other HEAD; git worktree remove /tmp/other",
    "fetch": "git fetch -q liza; git rev-parse liza/integration",
    "remote branch": "git rev-parse liza/integration liza/task/t",
}


def refs(slots: BoxedSlots) -> list[str]:
    lines = git(slots.repo, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return [line for line in lines if not line.startswith(run_git.BASE_PREFIX)]


def test_git_in_a_box_works_as_usual(slots: BoxedSlots) -> None:
    before, config = refs(slots), (slots.repo / ".git" / "config").read_bytes()
    failed = {}
    for name, script in ACTIONS.items():
        slots.begin()
        done = slots.inside(f"set -e; {script}")
        if done.returncode != 0:
            failed[name] = done.stdout + done.stderr
        run_git.leave_run_git(slots.trees.slot_git("s1"))
        git(slots.slot, "reset", "-q", "--hard")
        git(slots.slot, "clean", "-qfd")
    assert failed == {}
    assert (refs(slots), (slots.repo / ".git" / "config").read_bytes()) == (before, config)
    assert git(slots.repo, "worktree", "list").count("\n") == 1


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "action",
    ["gc --quiet --prune=now", "pack-refs --all", "prune --expire=now", "fetch -q .", "repack -qad"],
)
def test_a_persons_maintenance_changes_nothing_for_a_living_run(slots: BoxedSlots, action: str) -> None:
    slots.begin()
    slots.commit("one.txt")
    git(slots.repo, *action.split())
    slots.commit("two.txt")
    assert slots.do("git fsck --no-dangling; git log --format=%s -n2").splitlines()[-2:] == ["two.txt", "one.txt"]
    tip = slots.trees.import_run("s1")
    assert (tip, git(slots.repo, "fsck", "--no-dangling")) == (slots.tip(), "")
    assert git(slots.slot, "status", "--porcelain") == ""


def test_a_run_sees_the_integration_branch_move(slots: BoxedSlots) -> None:
    slots.begin()
    slots.commit("own.txt")
    git(slots.repo, "switch", "-q", "integration")
    commit_all(slots.repo, "moved", {"moved.txt": "moved\n"})
    slots.do("git fetch -q liza; git rebase -q liza/integration; test -e moved.txt")
    slots.trees.import_run("s1")
    assert git(slots.repo, "log", "--format=%s", "-n2", "task/t").splitlines() == ["own.txt", "moved"]


def test_a_branch_that_the_run_has_packed_is_imported(slots: BoxedSlots) -> None:
    slots.begin()
    commit = slots.commit("new.txt")
    slots.do("git gc -q --prune=now")
    assert not (slots.own.git / "refs" / "heads" / "task" / "t").exists()
    assert (slots.trees.import_run("s1"), slots.tip()) == (commit, commit)


def test_a_tasks_next_session_finds_its_stash_and_rebase(slots: BoxedSlots) -> None:
    slots.begin()
    slots.commit("own.txt")
    slots.do("echo stashed >> a.txt; git stash -q; git branch side")
    slots.do("git switch -qc other HEAD^; echo other > own.txt; git add .; git commit -qm o; git switch -q task/t")
    slots.inside("git rebase other")
    slots.trees.import_run("s1")
    git(slots.repo, "branch", "-f", "integration", slots.tip())
    slots.begin("coder-1.2")
    assert slots.do("git rev-parse integration liza/integration task/t").split() == [slots.tip()] * 3
    status = slots.do("git status; git stash list; git branch --list side")
    assert "rebase in progress" in status
    assert "stash@{0}" in status
    assert "side" in status
    assert git(slots.repo, "for-each-ref", "--format=%(refname)", "refs/liza/base") == "refs/liza/base/coder-1.2"


def test_the_next_task_of_a_slot_gets_its_own_git(slots: BoxedSlots) -> None:
    slots.begin()
    slots.commit("own.txt")
    slots.do("git config alias.x status; git branch side; printf dirty > a.txt")
    slots.claim("u", "coder-1.2")
    assert (slots.tip("task/t"), slots.salvages()) == (
        git(slots.repo, "log", "--format=%H", "--grep=own.txt", "task/t"),
        ["refs/liza/salvage/t/coder-1.1"],
    )
    slots.begin("coder-1.2")
    assert slots.do("git status --porcelain; git branch --show-current; git branch --list side") == "u".join(
        ["task/", ""]
    )
    assert slots.inside("git config alias.x").returncode == 1


def test_a_very_deep_directory_in_the_git_is_removed(slots: BoxedSlots) -> None:
    slots.begin()
    slots.do(f'mkdir -p "$(git rev-parse --git-dir)/{"d/" * 1500}"')
    slots.claim("u", "coder-1.2")
    slots.begin("coder-1.2")
    assert slots.inside('test -e "$(git rev-parse --git-dir)/d"').returncode == 1


def test_uncommitted_staged_and_nested_work_of_a_run_is_saved(slots: BoxedSlots) -> None:
    slots.begin()
    slots.do("echo staged > a.txt; git add a.txt; echo later > a.txt; echo new > n.txt; git init -q nested")
    slots.do("cd nested; echo x > x; git add .; git commit -qm inner")
    slots.claim("u", "coder-1.2")
    (ref,) = slots.salvages()
    assert git(slots.repo, "show", f"{ref}:a.txt") == "later"
    assert git(slots.repo, "show", f"{ref}:n.txt") == "new"
    assert git(slots.repo, "show", f"{ref}^3:a.txt") == "staged"
    assert ".liza-nested/nested.bundle" in git(slots.repo, "ls-tree", "-r", "--name-only", ref)
    assert git(slots.repo, "fsck", "--no-dangling") == ""


@pytest.mark.campaign
def test_commits_beside_the_branch_of_the_task_are_saved(slots: BoxedSlots) -> None:
    slots.begin()
    slots.do("echo 1 > a.txt; git stash -q; echo 2 > a.txt; git stash -q; git switch -qc side")
    slots.do("echo x > x; git add .; git commit -qm side; git switch -q --detach; git commit -q --allow-empty -m lost")
    slots.claim("u", "coder-1.2")
    subjects = [git(slots.repo, "log", "-4", "--format=%s", ref).splitlines() for ref in slots.salvages()]
    assert subjects[0] == ["Salvage of t after coder-1.1", "lost", "side", "files"]
    assert [lines[0].partition(":")[0] for lines in subjects[1:]] == ["WIP on task/t", "WIP on task/t"]


def test_a_repository_is_not_run_in_a_box_with_reftables(slots: BoxedSlots) -> None:
    (slots.repo / ".git" / "reftable").mkdir()
    with pytest.raises(Refused, match="reftables"):
        slots.begin()


@pytest.mark.parametrize("options", [("--filter=blob:none", "--no-checkout"), ("--depth=1",), ("--shared",)])
def test_a_partial_a_shallow_and_a_sharing_clone_work(repo: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    for number in range(3):
        commit_all(repo, str(number), {f"{number}.txt": f"{number}\n"})
    git(repo, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", *options, f"file://{repo}" if options != ("--shared",) else str(repo), "clone")
    slots = BoxedSlots(tmp_path / "clone", tmp_path / "slots").prepare()
    slots.begin()
    commit = slots.commit("new.txt")
    assert slots.do("git log --format=%s -1; git status --porcelain") == "new.txt"
    assert (slots.trees.import_run("s1"), slots.tip()) == (commit, commit)
    assert git(slots.repo, "fsck", "--no-dangling") == ""


def test_a_run_has_the_persons_sparse_checkout(slots: BoxedSlots) -> None:
    git(slots.repo, "sparse-checkout", "set", "d")
    slots.trees.remove("s1", lambda: None)
    slots.claim("t", "coder-1.3")
    slots.begin("coder-1.3")
    assert slots.do("git sparse-checkout list; git status --porcelain; ls d") == "d\nc.txt"
    commit = slots.commit("d/new.txt")
    assert slots.trees.import_run("s1") == commit
    assert git(slots.slot, "status", "--porcelain") == ""


@pytest.mark.campaign
def test_a_submodule_of_a_run_stays_and_is_saved(slots: BoxedSlots, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    git(tmp_path, "init", "-q", "inner")
    commit_all(inner, "inner", {"x": "x\n"})
    slots.begin()
    # The box hides other directories below /tmp, so the submodule comes from a copy in the slot.
    git(slots.slot, "clone", "-q", "--bare", str(inner), "inner.git")
    slots.do(
        "git -c protocol.file.allow=always submodule --quiet add ./inner.git sub; git add sub .gitmodules;"
        "git commit -qm sub; cd sub; echo y > y; git add .; git commit -qm own"
    )
    slots.trees.import_run("s1")
    slots.begin("coder-1.2")
    assert slots.do("cd sub; git log --format=%s -1") == "own"
    (slots.slot / "sub" / "z").write_text("not committed\n")
    slots.claim("u", "coder-1.3")
    slots.begin("coder-1.3")
    assert any(ref.endswith("-submodules") for ref in slots.salvages())
    assert "own" in git(slots.own.git / "modules" / "sub", "--work-tree=.", "log", "--all", "--format=%s")


def test_a_moved_repository_goes_on(repo: Path, tmp_path: Path) -> None:
    slots = BoxedSlots(repo).prepare()
    slots.begin()
    first = slots.commit("one.txt")
    slots.trees.import_run("s1")
    repo.rename(tmp_path / "elsewhere")
    moved = BoxedSlots(tmp_path / "elsewhere")
    slots.paths.slots.rename(moved.paths.slots)
    git(moved.repo, "worktree", "repair", str(moved.slot))
    moved.begin("coder-1.2")
    second = moved.commit("two.txt")
    assert moved.trees.import_run("s1") == second
    assert git(moved.repo, "rev-parse", f"{second}^") == first


def test_a_session_without_a_box_has_the_last_commits(slots: BoxedSlots) -> None:
    slots.begin()
    commit = slots.commit("one.txt")
    slots.do("echo x > a.txt; git stash -q")
    unconfined = replace(slots.trees, find_surroundings=lambda: None)
    unconfined.leave_box("s1")
    unconfined.leave_box("s1")
    assert git(slots.slot, "log", "-1", "--format=%H") == commit
    assert git(slots.slot, "status", "--porcelain") == ""
    assert slots.salvages() == ["refs/liza/salvage/t/coder-1.1-refs"]
    assert git(slots.repo, "for-each-ref", "refs/liza/base") == ""


def test_work_that_cannot_be_imported_now_stays_in_its_box(slots: BoxedSlots, monkeypatch: pytest.MonkeyPatch) -> None:
    slots.begin()
    commit = slots.commit("one.txt")
    with monkeypatch.context() as patch:
        patch.setattr(run_import, "_explain_index_pack", lambda *_: GitFailed("No space left on device"))
        patch.setattr(run_import, "MAX_PACK", 1)
        with pytest.raises(GitFailed, match="No space left"):
            slots.trees.leave_box("s1")
    assert slots.trees.run_of_git("s1") == "coder-1.1"
    slots.trees.leave_box("s1")
    assert (slots.trees.run_of_git("s1"), slots.tip()) == (None, commit)
