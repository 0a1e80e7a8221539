"""Nothing that lies in a work tree is lost when it is reset, and unfinished work comes back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from liza.git.runner import Git
from liza.git.salvage import (
    MAX_IGNORED_SIZE,
    create_salvage,
    find_unrestored,
    list_uncommitted,
    mark_restored,
    restore_salvage,
    salvage_if_needed,
)
from liza.model.errors import GitFailed
from tests.conftest import commit_all, git


@pytest.fixture
def slot(repo: Path) -> Git:
    """git in a linked work tree, detached at integration, with some files."""
    for name in ("kept", "changed", "deleted", "dir/file"):
        (repo / name).parent.mkdir(exist_ok=True)
        (repo / name).write_text(f"{name}\n")
    commit_all(repo, "files", {".gitignore": "*.log\nbuild/\n"})
    git(repo, "branch", "integration")
    git(repo, "worktree", "add", "-q", "--detach", str(repo / "s1"))
    return Git(repo).with_git_dir(repo / "s1", repo / ".git" / "worktrees" / "s1")


def names(runner: Git, ref: str) -> set[str]:
    return set(runner.names("ls-tree", "-r", "-z", "--name-only", ref))


def wipe(runner: Git) -> None:
    runner.out("reset", "--hard", "-q")
    runner.out("clean", "-ffdx", "-q")


def test_a_clean_work_tree_at_integration_needs_no_salvage(slot: Git) -> None:
    (slot.directory / "x.log").write_text("ignored alone is no reason")
    assert salvage_if_needed(slot, "t", "coder-1.1") is None
    assert slot.out("for-each-ref", "refs/liza") == ""


def test_a_salvage_has_everything_uncommitted_and_keeps_the_index(slot: Git) -> None:
    top = slot.directory
    (top / "changed").write_text("new text\n")
    (top / "deleted").unlink()
    (top / "new\nname ü").write_text("new\n")
    (top / "link").symlink_to("/etc/passwd")
    (top / "x.log").write_text("ignored\n")
    (top / "build").mkdir()
    (top / "build" / "out").write_text("built\n")
    (top / "run.sh").write_text("#!/bin/sh\n")
    (top / "run.sh").chmod(0o755)
    before = slot.out("status", "--porcelain")
    ref = salvage_if_needed(slot, "t", "coder-1.1")
    assert ref == "refs/liza/salvage/t/coder-1.1"
    assert names(slot, ref) == {
        "README.md",
        ".gitignore",
        "kept",
        "changed",
        "dir/file",
        "new\nname ü",
        "link",
        "x.log",
        "build/out",
        "run.sh",
    }
    assert slot.out("rev-parse", f"{ref}^1") == slot.out("rev-parse", "HEAD")
    assert slot.out("show", f"{ref}:changed") == "new text"
    assert slot.out("ls-tree", ref, "link", "run.sh").startswith(("120000", "100755"))
    assert slot.out("status", "--porcelain") == before


def test_a_salvage_restores_uncommitted_changes_but_no_ignored_files(slot: Git) -> None:
    top = slot.directory
    (top / "changed").write_text("new text\n")
    (top / "deleted").unlink()
    (top / "new").write_text("new\n")
    (top / "x.log").write_text("ignored\n")
    ref = salvage_if_needed(slot, "t", "coder-1.1")
    assert ref is not None
    assert list_uncommitted(slot, ref) == ("changed", "deleted", "new")
    wipe(slot)
    assert restore_salvage(slot, ref).files == ("changed", "deleted", "new")
    assert slot.out("status", "--porcelain").splitlines() == [" M changed", " D deleted", "?? new"]
    assert not (top / "x.log").exists()


def test_restored_changes_are_merged_onto_a_moved_branch_without_conflicts(slot: Git) -> None:
    top = slot.directory
    (top / "changed").write_text("mine\n")
    (top / "new").write_text("new\n")
    ref = create_salvage(slot, "t", "coder-1.1")
    wipe(slot)
    (top / "changed").write_text("theirs\n")
    (top / "kept").write_text("theirs\n")
    slot.with_identity().out("commit", "-qam", "moved on")
    found = restore_salvage(slot, ref)
    assert (found.files, found.conflicts) == (("new",), ("changed",))
    assert slot.out("status", "--porcelain") == "?? new"


def test_a_head_outside_every_branch_is_saved_with_its_commits(slot: Git) -> None:
    (slot.directory / "changed").write_text("committed\n")
    slot.with_identity().out("commit", "-qam", "on no branch")
    head = slot.out("rev-parse", "HEAD")
    ref = salvage_if_needed(slot, "t", "coder-1.1")
    assert ref is not None
    assert slot.out("rev-parse", f"{ref}^") == head
    assert list_uncommitted(slot, ref) == ()
    assert salvage_if_needed(slot, "t", "coder-1.2", kept_in=("refs/heads/integration", head)) is None


def test_an_unchanged_state_is_saved_once_and_never_overwritten(slot: Git) -> None:
    (slot.directory / "new").write_text("one\n")
    first = create_salvage(slot, "t", "coder-1.1")
    assert create_salvage(slot, "t", "coder-1.1") == first
    (slot.directory / "new").write_text("two\n")
    second = create_salvage(slot, "t", "coder-1.1")
    assert second == "refs/liza/salvage/t/coder-1.1+2"
    assert (slot.out("show", f"{first}:new"), slot.out("show", f"{second}:new")) == ("one", "two")


def test_large_ignored_files_are_named_and_small_ones_saved(slot: Git) -> None:
    top = slot.directory
    (top / "build").mkdir()
    with (top / "build" / "big").open("wb") as stream:
        stream.truncate(MAX_IGNORED_SIZE + 1)
    (top / "a.log").write_text("small\n")
    (top / "new").write_text("x")
    ref = create_salvage(slot, "t", "coder-1.1")
    assert "a.log" in names(slot, ref)
    assert "build/big" not in names(slot, ref)
    assert 'too large to be saved: "build/"' in slot.out("log", "-1", "--format=%B", ref)


def test_a_nested_repository_is_saved_as_a_bundle_with_changes(slot: Git, tmp_path: Path) -> None:
    inner = slot.directory / "lib" / "inner"
    inner.mkdir(parents=True)
    git(inner, "init", "-q", "-b", "main")
    commit_all(inner, "inner commit", {"a": "a\n"})
    (inner / "b").write_text("uncommitted\n")
    ref = salvage_if_needed(slot, "t", "coder-1.1")
    assert ref is not None
    (tmp_path / "b.bundle").write_bytes(slot.raw("cat-file", "blob", f"{ref}:.liza-nested/lib/inner.bundle"))
    git(tmp_path, "clone", "-q", "--mirror", str(tmp_path / "b.bundle"), "copy")
    assert git(tmp_path / "copy", "log", "--format=%s", "main") == "inner commit"
    saved = git(tmp_path / "copy", "for-each-ref", "--format=%(refname)", "refs/liza/salvage")
    assert git(tmp_path / "copy", "show", f"{saved}:b") == "uncommitted"
    wipe(slot)
    assert restore_salvage(slot, ref).files == ()


@pytest.mark.campaign
def test_a_nested_repository_without_a_commit_is_saved_too(slot: Git) -> None:
    inner = slot.directory / "inner"
    inner.mkdir()
    git(inner, "init", "-q", "-b", "main")
    (inner / "a").write_text("a\n")
    ref = salvage_if_needed(slot, "t", "coder-1.1")
    assert ref is not None
    assert ".liza-nested/inner.bundle" in names(slot, ref)


@pytest.mark.campaign
def test_the_monitor_of_a_nested_repository_does_not_run(slot: Git, tmp_path: Path) -> None:
    inner = slot.directory / "inner"
    inner.mkdir()
    git(inner, "init", "-q", "-b", "main")
    (inner / "a").write_text("a\n")
    git(inner, "config", "core.fsmonitor", f"touch {tmp_path}/it-ran")
    assert salvage_if_needed(slot, "t", "coder-1.1") is not None
    assert not (tmp_path / "it-ran").exists()


def test_a_nested_work_tree_of_an_agent_is_saved_too(slot: Git) -> None:
    git(slot.directory, "worktree", "add", "-q", "--detach", "inner")
    (slot.directory / "inner" / "a").write_text("a\n")
    ref = salvage_if_needed(slot, "t", "coder-1.1")
    assert ref is not None
    assert slot.out("show", "refs/liza/salvage/t/coder-1.1-nested:a") == "a"
    assert ".liza-nested/inner.bundle" not in names(slot, ref)


def test_an_unfinished_merge_is_saved_with_its_files(slot: Git) -> None:
    top = slot.directory
    base = slot.out("rev-parse", "HEAD")
    (top / "changed").write_text("ours\n")
    slot.with_identity().out("commit", "-qam", "ours")
    ours = slot.out("rev-parse", "HEAD")
    slot.out("checkout", "-q", "--detach", base)
    (top / "changed").write_text("theirs\n")
    slot.with_identity().out("commit", "-qam", "theirs")
    assert slot.with_identity().run("merge", ours).code == 1
    (top / "changed").write_text("half resolved\n")
    ref = salvage_if_needed(slot, "t", "coder-1.1")
    assert ref is not None
    assert slot.out("show", f"{ref}:changed") == "half resolved"


def test_what_was_staged_and_then_deleted_is_saved_too(slot: Git) -> None:
    (slot.directory / "new").write_text("only in the index\n")
    slot.out("add", "new")
    (slot.directory / "new").unlink()
    ref = salvage_if_needed(slot, "t", "coder-1.1")
    assert ref is not None
    assert slot.out("show", f"{ref}^3:new") == "only in the index"
    wipe(slot)
    assert restore_salvage(slot, ref).files == ()


def test_changes_hidden_from_git_are_saved(slot: Git) -> None:
    slot.out("update-index", "--assume-unchanged", "changed")
    slot.out("update-index", "--skip-worktree", "kept")
    for name in ("changed", "kept"):
        (slot.directory / name).write_text("hidden change\n")
    ref = salvage_if_needed(slot, "t", "coder-1.1")
    assert ref is not None
    assert list_uncommitted(slot, ref) == ("changed", "kept")


def _objects(slot: Git) -> str:
    return str(slot.directory.parent / ".git" / "objects")


def test_a_salvage_that_cannot_be_made_writes_no_ref(slot: Git) -> None:
    (slot.directory / "new").write_text("x")
    # Objects that cannot be written; permissions would not stop root.
    broken = slot.with_environment(
        GIT_OBJECT_DIRECTORY="/dev/null/objects", GIT_ALTERNATE_OBJECT_DIRECTORIES=_objects(slot)
    )
    with pytest.raises(GitFailed):
        salvage_if_needed(broken, "t", "coder-1.1")
    assert slot.out("for-each-ref", "refs/liza") == ""
    assert (slot.directory / "new").read_text() == "x"


def _salvage_refs(slot: Git) -> Path:
    return slot.directory.parent / ".git" / "refs" / "liza" / "salvage"


def test_a_salvage_refused_by_git_is_refused_with_its_reason(slot: Git) -> None:
    (slot.directory / "new").write_text("x")
    path = _salvage_refs(slot)
    path.parent.mkdir(parents=True)
    path.write_text("in the way\n")
    with pytest.raises(GitFailed, match=r"refs/liza/salvage/t/coder-1\.1 could not be written: .*cannot lock ref"):
        create_salvage(slot, "t", "coder-1.1")


def test_a_lock_on_an_interrupted_salvage_does_not_stop_another(slot: Git) -> None:
    (slot.directory / "new").write_text("x")
    lock = _salvage_refs(slot) / "t" / "coder-1.1.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    os.utime(lock, (1, 1))
    assert create_salvage(slot, "t", "coder-1.1") == "refs/liza/salvage/t/coder-1.1"
    assert not lock.exists()


def test_a_name_with_a_ref_below_it_is_not_used(slot: Git) -> None:
    (slot.directory / "new").write_text("x")
    slot.out("update-ref", "refs/liza/salvage/t/coder-1.1/planted", "HEAD")
    assert create_salvage(slot, "t", "coder-1.1") == "refs/liza/salvage/t/coder-1.1+2"


def test_the_newest_salvage_of_a_task_is_restored_once(slot: Git) -> None:
    assert find_unrestored(slot, "t") is None
    (slot.directory / "new").write_text("x")
    ref = create_salvage(slot, "t", "coder-1.1")
    assert find_unrestored(slot, "t") == ref
    assert find_unrestored(slot, "t-2") is None
    mark_restored(slot, "t", ref)
    assert find_unrestored(slot, "t") is None
