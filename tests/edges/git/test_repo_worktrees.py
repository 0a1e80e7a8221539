"""Slots are handed on without losing anything, whoever dies at whatever moment."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from liza.git import hiding, leftovers, reset, salvage, slot_records
from liza.git import worktrees as pool
from liza.git.runner import Git
from liza.git.salvage import restore_salvage
from liza.git.worktrees import PreparedSlot, Worktrees
from liza.model.errors import GitFailed, NotOwner, Refused
from liza.model.paths import Paths
from liza.model.value_classes import replace
from tests.conftest import KEY, commit_all, git, hidden_block, variant

BLOCK = hidden_block("coder-1.1")


@pytest.fixture
def trees(repo: Path) -> Worktrees:
    commit_all(repo, "files", {".gitignore": "*.log\nnode_modules/\n", "a.txt": "a\n"})
    git(repo, "branch", "integration")
    (repo / ".liza").mkdir()
    hiding.ignore_liza_dirs(Git(repo))
    hiding.install_filter(Git(repo))
    return Worktrees(Paths(repo), Git(repo))


def claim(trees: Worktrees, slot: str, task: str, run: str) -> PreparedSlot:
    prepared = trees.prepare(slot, task, run, None)
    trees.finish(slot, task, run)
    return prepared


def commit(trees: Worktrees, slot: str, name: str) -> str:
    place = trees.paths.slot(slot)
    commit_all(place, name, {name: f"{name}\n"})
    return trees.head_commit(slot)


def status(trees: Worktrees, slot: str) -> list[str]:
    return git(trees.paths.slot(slot), "status", "--porcelain").splitlines()


def salvages(trees: Worktrees) -> list[str]:
    return git(trees.paths.root, "for-each-ref", "--format=%(refname)", "refs/liza/salvage").splitlines()


def test_a_first_claim_gives_a_slot_on_the_tasks_branch(trees: Worktrees) -> None:
    tip = git(trees.paths.root, "rev-parse", "integration")
    git(trees.paths.root, "config", "branch.autoSetupMerge", "always")
    assert claim(trees, "s1", "task-3", "coder-1.1") == PreparedSlot("task/task-3", tip, False)
    place = trees.paths.slot("s1")
    assert git(place, "symbolic-ref", "--short", "HEAD") == "task/task-3"
    assert trees.paths.task_link("task-3").readlink() == Path("../s1")
    assert (trees.paths.task_link("task-3") / "a.txt").read_text() == "a\n"
    assert "branch." not in git(trees.paths.root, "config", "--list").replace("branch.autosetupmerge", "")
    assert git(trees.paths.root, "status", "--porcelain") == ""
    assert (trees.slot_names(), trees.owner("s1"), trees.list_changes("s1")) == (("s1",), ("task-3", "coder-1.1"), ())
    assert salvages(trees) == []


def test_git_in_a_slot_ignores_core_worktree_of_the_repository(trees: Worktrees, tmp_path: Path) -> None:
    """A submodule and a separate git directory have core.worktree; other tools let it count in every worktree."""
    trees = replace(trees, paths=replace(trees.paths, chosen_slots=tmp_path / 'odd "names\\'))
    root, slot = trees.paths.root, trees.paths.slot("s1")
    git(root, "config", "core.worktree", str(root))
    claim(trees, "s1", "a", "coder-1.1")
    git(root, "config", "extensions.worktreeConfig", "true")
    assert git(slot, "rev-parse", "--show-toplevel") == str(slot)
    (root / "a.txt").write_text("mine\n")
    git(slot, "checkout", "-q", "HEAD", "--", ".")
    assert (root / "a.txt").read_text() == "mine\n"
    git(slot, "config", "--worktree", "pull.rebase", "true")
    git(slot, "config", "--worktree", "--add", "core.worktree", str(root))
    claim(trees, "s1", "b", "coder-1.2")
    assert git(slot, "rev-parse", "--show-toplevel") == str(slot)
    assert git(slot, "config", "pull.rebase") == "true"


def test_another_tasks_slot_is_saved_and_reused_with_ignored_files(trees: Worktrees) -> None:
    claim(trees, "s1", "one", "coder-1.1")
    head = commit(trees, "s1", "committed")
    place = trees.paths.slot("s1")
    (place / "unfinished").write_text("x\n")
    (place / "node_modules").mkdir()
    (place / "node_modules" / "dependency").write_text("slow to install\n")
    prepared = claim(trees, "s1", "two", "coder-2.1")
    assert not prepared.restores_files
    assert sorted(path.name for path in place.iterdir()) == [".git", ".gitignore", "README.md", "a.txt", "node_modules"]
    assert salvages(trees) == ["refs/liza/salvage/one/coder-1.1"]
    assert git(place, "show", "refs/liza/salvage/one/coder-1.1:unfinished") == "x"
    assert git(place, "rev-parse", "task/one") == head


def test_a_takeover_continues_at_the_tip_with_unfinished_files(trees: Worktrees) -> None:
    claim(trees, "s1", "one", "coder-1.1")
    head = commit(trees, "s1", "committed")
    place = trees.paths.slot("s1")
    (place / "unfinished").write_text("x\n")
    (place / "a.txt").write_text("changed\n")
    (place / "x.log").write_text("ignored\n")
    assert claim(trees, "s1", "one", "coder-2.1") == PreparedSlot("task/one", head, True)
    assert status(trees, "s1") == [" M a.txt", "?? unfinished"]
    assert trees.owner("s1") == ("one", "coder-2.1")


@pytest.mark.campaign
def test_saved_work_is_restored_into_another_slot_once(trees: Worktrees) -> None:
    claim(trees, "s1", "one", "coder-1.1")
    (trees.paths.slot("s1") / "unfinished").write_text("x\n")
    claim(trees, "s1", "two", "coder-2.1")
    assert claim(trees, "s2", "one", "coder-1.2").restores_files
    assert status(trees, "s2") == ["?? unfinished"]
    commit(trees, "s2", "unfinished")
    trees.release("s2", "one", "coder-1.2")
    assert not claim(trees, "s3", "one", "coder-1.3").restores_files
    assert status(trees, "s3") == []


def test_prepare_destroys_nothing_and_undo_gives_the_slot_back(trees: Worktrees) -> None:
    claim(trees, "s1", "one", "coder-1.1")
    (trees.paths.slot("s1") / "unfinished").write_text("x\n")
    trees.prepare("s1", "two", "coder-2.1", None)
    assert status(trees, "s1") == ["?? unfinished"]
    trees.undo("s1", "one", "coder-1.1")
    trees.undo("s1", "two", "coder-2.9")
    assert trees.owner("s1") == ("two", "coder-2.1")
    trees.undo("s1", "two", "coder-2.1")
    trees.undo("s1", "two", "coder-2.1")
    assert trees.owner("s1") == ("one", "coder-1.1")
    assert trees.is_finished("s1", "one", "coder-1.1")
    assert git(trees.paths.slot("s1"), "symbolic-ref", "--short", "HEAD") == "task/one"


def test_finish_is_refused_to_a_run_without_the_slot(trees: Worktrees) -> None:
    claim(trees, "s1", "one", "coder-1.1")
    (trees.paths.slot("s1") / "unfinished").write_text("x\n")
    with pytest.raises(NotOwner):
        trees.finish("s1", "one", "coder-2.1")
    assert status(trees, "s1") == ["?? unfinished"]


def test_finish_repeated_after_the_agent_began_touches_nothing(trees: Worktrees) -> None:
    claim(trees, "s1", "one", "coder-1.1")
    (trees.paths.slot("s1") / "unfinished").write_text("x\n")
    trees.paths.task_link("one").unlink()
    trees.finish("s1", "one", "coder-1.1")
    trees.prepare("s1", "one", "coder-1.1", None)
    assert status(trees, "s1") == ["?? unfinished"]
    assert trees.paths.task_link("one").is_symlink()


@pytest.mark.sample(1)
@pytest.mark.parametrize("step", [variant("empty"), "switch", variant("lay_back"), "note"])
def test_a_killed_finish_is_completed_by_the_next_run(trees: Worktrees, step: str) -> None:
    claim(trees, "s1", "one", "coder-1.1")
    (trees.paths.slot("s1") / "unfinished").write_text("x\n")
    (trees.paths.slot("s1") / "a.txt").write_text("changed\n")
    for run in ("coder-2.1", "coder-2.2"):
        trees.prepare("s1", "one", run, None)
        assert _killed_at(trees, run, step) == -signal.SIGKILL
    trees.finish("s1", "one", "coder-2.2")
    assert status(trees, "s1") == [" M a.txt", "?? unfinished"]
    assert trees.is_finished("s1", "one", "coder-2.2")


def _killed_at(trees: Worktrees, run: str, step: str) -> int | None:
    process = multiprocessing.get_context("fork").Process(target=_finish_until, args=(trees, run, step))
    process.start()
    process.join()
    return process.exitcode


def _finish_until(trees: Worktrees, run: str, step: str) -> None:
    from liza.git import worktrees as pool

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if step == "empty":
        reset.discard_changes = die
    elif step == "switch":
        Worktrees._checkout = die  # type: ignore[assignment]
    elif step == "lay_back":
        pool.restore_salvage = die  # type: ignore[assignment]
    else:
        pool.mark_restored = die
    trees.finish("s1", "one", run)


def test_a_slot_whose_salvage_fails_is_not_reset(trees: Worktrees, monkeypatch: pytest.MonkeyPatch) -> None:
    claim(trees, "s1", "one", "coder-1.1")
    (trees.paths.slot("s1") / "unfinished").write_text("x\n")
    monkeypatch.setattr(salvage, "_DEPTH", 0)
    git(trees.paths.slot("s1"), "init", "-q", "nested")
    for act in (
        lambda: trees.prepare("s1", "two", "coder-2.1", None),
        lambda: trees.detach("s1", "main", "coder-2.1"),
        lambda: trees.release("s1", "one", "coder-1.1"),
        trees.remove_all,
    ):
        with pytest.raises(GitFailed):
            act()
        assert (trees.paths.slot("s1") / "unfinished").read_text() == "x\n"


def test_a_half_made_worktree_of_a_killed_add_is_remade(trees: Worktrees) -> None:
    root, place = trees.paths.root, trees.paths.slot("s1")
    admin = root / ".git" / "worktrees" / "s1"
    trees.add("s1", "main")
    (admin / "locked").write_text("initializing")
    (place / "a.txt").unlink()
    trees.prepare("s1", "one", "coder-1.1", None)
    trees.finish("s1", "one", "coder-1.1")
    assert status(trees, "s1") == []
    assert not (admin / "locked").exists()


def test_a_worktree_add_killed_before_its_start_is_repeated(trees: Worktrees) -> None:
    place = trees.paths.slot("s1")
    admin = trees.paths.root / ".git" / "worktrees" / "s1"
    admin.mkdir(parents=True)
    (admin / "locked").write_text("initializing")
    (admin / "gitdir").write_text(f"{place}/.git\n")
    place.mkdir(parents=True)
    trees.add("s1", "main")
    assert status(trees, "s1") == []


def test_a_deleted_slot_is_recreated(trees: Worktrees) -> None:
    claim(trees, "s1", "one", "coder-1.1")
    head = commit(trees, "s1", "x")
    subprocess.run(["rm", "-rf", trees.paths.slot("s1")], check=True)
    assert claim(trees, "s1", "one", "coder-1.2").base == head
    assert trees.head_commit("s1") == head


def test_many_slots_added_at_once_all_come_to_be(trees: Worktrees) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=claim, args=(trees, f"s{n}", f"t{n}", "coder-1.1")) for n in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert trees.slot_names() == ("s0", "s1", "s2", "s3")


def test_a_git_whose_caller_was_killed_keeps_its_lock(trees: Worktrees, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    # A smudge filter of the day of init that waits: git is in the midst of the checkout as long as we like.
    (trees.paths.root / ".gitattributes").write_text("a.txt filter=slow\n")
    git(trees.paths.root, "add", ".gitattributes")
    git(trees.paths.root, "commit", "-q", "-m", "slow")
    git(trees.paths.root, "config", "filter.slow.smudge", f"echo begun > {fifo}; cat {fifo} > /dev/null; cat")
    slow = Worktrees(trees.paths, Git(trees.paths.root))
    process = multiprocessing.get_context("fork").Process(target=slow.add, args=("s1", "main"))
    process.start()
    assert fifo.read_text() == "begun\n"
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    from liza.model.errors import LockTimeout
    from liza.system.locks import lock_path

    with pytest.raises(LockTimeout), lock_path(trees.paths.worktree_lock, timeout=0.05):
        pass
    fifo.write_text("go on")
    with lock_path(trees.paths.worktree_lock, timeout=60):
        pass
    assert (trees.paths.slot("s1") / "a.txt").read_text() == "a\n"


def test_a_detached_slot_is_empty_and_discards_only_saved_files(trees: Worktrees) -> None:
    claim(trees, "s1", "one", "coder-1.1")
    first = commit(trees, "s1", "first")
    trees.detach("code-reviewer-1", first, "code-reviewer-1.1")
    assert trees.head_commit("code-reviewer-1") == first
    assert trees.owner("code-reviewer-1") == ("code-reviewer-1", "code-reviewer-1.1")
    trees.detach("code-reviewer-1", "integration", "code-reviewer-1.2")
    assert salvages(trees) == []
    (trees.paths.slot("code-reviewer-1") / "probe").write_text("x\n")
    trees.detach("code-reviewer-1", first, "code-reviewer-1.3")
    assert status(trees, "code-reviewer-1") == []
    assert salvages(trees) == ["refs/liza/salvage/code-reviewer-1/code-reviewer-1.2"]


def test_clear_removes_branch_and_link_and_can_be_repeated(trees: Worktrees) -> None:
    claim(trees, "s1", "one", "coder-1.1")
    head = commit(trees, "s1", "x")
    trees.release("s1", "two", "coder-1.1")
    assert trees.owner("s1") == ("one", "coder-1.1")
    for _ in range(2):
        trees.release("s1", "one", "coder-1.1")
    assert trees.owner("s1") is None
    assert not trees.paths.task_link("one").is_symlink()
    git(trees.paths.root, "checkout", "-q", "task/one")
    assert git(trees.paths.root, "rev-parse", "HEAD") == head


def test_clearing_a_deleted_slot_also_removes_its_branch(trees: Worktrees) -> None:
    claim(trees, "s1", "one", "coder-1.1")
    commit(trees, "s1", "x")
    shutil.rmtree(trees.paths.slot("s1"))
    assert trees.recorded_slots() == ("s1",)
    trees.release("s1", "one", "coder-1.1")
    git(trees.paths.root, "checkout", "-q", "task/one")


def test_a_task_with_a_deleted_directory_gets_another_slot(trees: Worktrees) -> None:
    claim(trees, "s1", "one", "coder-1.1")
    head = commit(trees, "s1", "x")
    shutil.rmtree(trees.paths.slot("s1"))
    claim(trees, "s2", "one", "coder-1.2")
    assert trees.head_commit("s2") == head


def test_a_branch_checked_out_by_a_person_refuses_the_claim(trees: Worktrees) -> None:
    git(trees.paths.root, "checkout", "-q", "-b", "task/one")
    with pytest.raises(Refused, match="checked out in"):
        trees.prepare("s1", "one", "coder-1.1", None)
    assert trees.slot_names() == ()


def test_branch_in_another_slot_after_crash_is_released_with_files(trees: Worktrees) -> None:
    claim(trees, "s1", "one", "coder-1.1")
    (trees.paths.slot("s1") / "unfinished").write_text("x\n")
    claim(trees, "s2", "one", "coder-1.2")
    assert git(trees.paths.slot("s2"), "symbolic-ref", "--short", "HEAD") == "task/one"
    assert status(trees, "s1") == ["?? unfinished"]
    assert trees.paths.task_link("one").readlink() == Path("../s2")


def test_a_stale_rebase_or_index_lock_does_not_stop_claims(trees: Worktrees) -> None:
    claim(trees, "s1", "one", "coder-1.1")
    place = trees.paths.slot("s1")
    base = trees.head_commit("s1")
    (place / "a.txt").write_text("mine\n")
    git(place, "commit", "-qam", "mine")
    git(place, "checkout", "-q", "--detach", base)
    (place / "a.txt").write_text("other\n")
    git(place, "commit", "-qam", "other")
    onto = trees.head_commit("s1")
    git(place, "checkout", "-q", "task/one")
    assert subprocess.run(["git", "rebase", onto], cwd=place, capture_output=True).returncode == 1
    (trees.paths.root / ".git" / "worktrees" / "s1" / "index.lock").write_text("")
    claim(trees, "s1", "one", "coder-2.1")
    assert git(place, "symbolic-ref", "--short", "HEAD") == "task/one"
    assert "rebase" not in git(place, "status")


def test_a_slot_without_its_git_file_resets_no_other_checkout(trees: Worktrees) -> None:
    claim(trees, "s1", "one", "coder-1.1")
    (trees.paths.root / "a.txt").write_text("the person's own change\n")
    place = trees.paths.slot("s1")
    for text in (None, f"gitdir: {trees.paths.root}/.git\n"):
        (place / ".git").unlink()
        if text is not None:
            (place / ".git").write_text(text)
        (place / "unfinished").write_text("x\n")
        assert trees.list_changes("s1") == ("unfinished",)
        trees.detach("s1", "integration", "coder-1.2")
        assert not (place / "unfinished").exists()
    assert (trees.paths.root / "a.txt").read_text() == "the person's own change\n"
    assert status(trees, "s1") == []


def test_an_ignored_file_that_blocks_tracked_ones_is_saved(trees: Worktrees) -> None:
    root = trees.paths.root
    (root / "x.log").write_text("tracked\n")
    git(root, "add", "-f", "x.log")
    git(root, "commit", "-q", "-m", "a tracked log")
    trees.add("s1", "integration")
    (trees.paths.slot("s1") / "x.log").write_text("ignored\n")
    trees.detach("s1", "main", "coder-1.1")
    assert (trees.paths.slot("s1") / "x.log").read_text() == "tracked\n"
    assert git(root, "show", f"{salvages(trees)[0]}:x.log") == "ignored"


def test_a_link_planted_in_a_slot_is_never_written_through(trees: Worktrees, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("precious\n")
    claim(trees, "s1", "one", "coder-1.1")
    place = trees.paths.slot("s1")
    (place / "d").mkdir()
    commit(trees, "s1", "d/f")
    (place / "d" / "f").write_text("unfinished\n")
    ref = salvage.create_salvage(trees.slot_git("s1"), "one", "coder-1.1")
    subprocess.run(["rm", "-rf", place / "d"], check=True)
    (place / "d").symlink_to(outside)
    restore_salvage(trees.slot_git("s1"), ref)
    claim(trees, "s1", "one", "coder-1.2")
    trees.detach("s1", "integration", "coder-1.3")
    assert (outside / "f").read_text() == "precious\n"


def test_emptying_a_slot_removes_the_block_of_an_ended_run(trees: Worktrees) -> None:
    claim(trees, "s1", "one", "coder-1.1")
    commit(trees, "s1", "CLAUDE.md")
    place = trees.paths.slot("s1")
    for name in ("CLAUDE.md", "AGENTS.md"):
        before = (place / name).read_bytes() if (place / name).exists() else b""
        (place / name).write_bytes(BLOCK + before)
    hiding.bind_filter(trees.git, ["CLAUDE.md", "AGENTS.md"], "coder-1.1", KEY)
    assert trees.list_changes("s1") == ()
    hiding.hide_files(trees.git, ["AGENTS.md"], "coder-1.1")
    assert hiding.refresh_index_entry(trees.slot_git("s1"), "CLAUDE.md")
    assert status(trees, "s1") == []
    claim(trees, "s1", "one", "coder-1.2")
    assert (place / "CLAUDE.md").read_text() == "CLAUDE.md\n"
    assert not (place / "AGENTS.md").exists()
    assert status(trees, "s1") == []


def test_remove_all_saves_work_and_keeps_only_the_refs(trees: Worktrees) -> None:
    claim(trees, "s1", "one", "coder-1.1")
    (trees.paths.slot("s1") / "unfinished").write_text("x\n")
    trees.detach("code-reviewer-1", "integration", "code-reviewer-1.1")
    assert trees.remove_all() == ("refs/liza/salvage/one/coder-1.1",)
    assert not any(trees.paths.slots.iterdir())
    assert git(trees.paths.root, "worktree", "list").count("\n") == 0
    assert trees.remove_all() == ()


def test_remove_all_saves_only_commits_no_branch_has(
    trees: Worktrees,
) -> None:
    for slot, task in (("s1", "one"), ("s2", "two")):
        claim(trees, slot, task, "coder-1.1")
        there = trees.paths.slot(slot)
        commit_all(there, "work", {"new.txt": "x\n"})
    tip = git(trees.paths.slot("s2"), "rev-parse", "HEAD")
    git(trees.paths.slot("s2"), "checkout", "-q", "--detach")
    git(trees.paths.root, "branch", "-f", "task/two", "main")
    assert trees.remove_all() == ("refs/liza/salvage/two/coder-1.1",)
    assert git(trees.paths.root, "rev-parse", "refs/liza/salvage/two/coder-1.1^") == tip
    assert git(trees.paths.root, "show", "task/one:new.txt") == "x"


@pytest.fixture
def library(trees: Worktrees, tmp_path: Path) -> Path:
    """Two submodules, ``deps/lib`` with work of ``t1`` and ``deps/clean`` without, in the slot ``s1``."""
    root = trees.paths.root
    for name in ("lib", "clean"):
        git(tmp_path, "init", "-q", "-b", "main", name)
        git(tmp_path / name, "commit", "-q", "--allow-empty", "-m", "first")
        git(root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(tmp_path / name), f"deps/{name}")
    git(root, "commit", "-q", "-m", "submodules")
    git(root, "branch", "-f", "integration", "HEAD")
    claim(trees, "s1", "t1", "coder-1.1")
    slot = trees.paths.slot("s1")
    git(slot, "-c", "protocol.file.allow=always", "submodule", "update", "-q", "--init")
    inner = slot / "deps" / "lib"
    git(inner, "commit", "-q", "--allow-empty", "-m", "work of the agent")
    git(slot, "add", "deps/lib")
    (inner / "draft").write_text("not committed\n")
    return inner


def fetch_bundle(root: Path, ref: str, name: str, into: Path) -> None:
    """Fetch the salvaged repository ``name`` into the branch ``saved`` of another."""
    with (into.parent / "bundle").open("wb") as bundle:
        subprocess.run(["git", "cat-file", "blob", f"{ref}:.liza-nested/{name}.bundle"], cwd=root, stdout=bundle)
    git(into, "fetch", "-q", str(into.parent / "bundle"), "refs/liza/salvage/nested/work:refs/heads/saved")


@pytest.mark.parametrize("next_step", ["claim", variant("detach"), variant("release")])
def test_submodule_work_is_saved_and_hidden_from_the_next_task(
    trees: Worktrees, library: Path, tmp_path: Path, next_step: str
) -> None:
    slot, root = trees.paths.slot("s1"), trees.paths.root
    (library / "kept").write_text("hidden\n")
    git(library, "add", "kept")
    git(library, "commit", "-q", "-m", "a second commit of the agent")
    git(library, "update-index", "--assume-unchanged", "kept")
    (library / "kept").write_text("changed\n")
    Path(git(library, "rev-parse", "--absolute-git-dir"), "index.lock").write_text("")
    if next_step == "claim":
        claim(trees, "s1", "t2", "coder-1.2")
    elif next_step == "detach":
        trees.detach("s1", "integration", "coder-1.2")
    else:
        trees.release("s1", "t1", "coder-1.1")
        claim(trees, "s1", "t2", "coder-1.2")
    assert git(slot, "status", "--porcelain") == ""
    assert git(library, "rev-parse", "HEAD") == git(slot, "rev-parse", "HEAD:deps/lib")
    saved = "refs/liza/salvage/t1/coder-1.1-submodules"
    salvages = ("for-each-ref", "--format=%(refname)", "refs/liza/salvage/*/*-submodules")
    assert git(root, *salvages).split() == [saved]
    assert git(root, "ls-tree", "-r", "--name-only", saved).split() == [".liza-nested/deps/lib.bundle"]
    fetch_bundle(root, saved, "deps/lib", tmp_path / "lib")
    assert git(tmp_path / "lib", "show", "saved:draft").strip() == "not committed"
    assert git(tmp_path / "lib", "show", "saved:kept").strip() == "changed"
    assert "work of the agent" in git(tmp_path / "lib", "log", "--format=%s", "saved")
    # What is saved is not saved again.
    claim(trees, "s1", "t3", "coder-1.3")
    assert git(root, *salvages).split() == [saved]


@pytest.mark.campaign
def test_a_continued_task_finds_its_submodules_unchanged(trees: Worktrees, library: Path) -> None:
    claim(trees, "s1", "t1", "coder-1.2")
    assert (library / "draft").read_text() == "not committed\n"
    assert "work of the agent" in git(library, "log", "--format=%s")


@pytest.mark.campaign
def test_a_returning_task_gets_files_but_no_submodule_salvage(trees: Worktrees, library: Path) -> None:
    slot = trees.paths.slot("s1")
    (slot / "unfinished.txt").write_text("x\n")
    claim(trees, "s1", "t2", "coder-1.2")
    assert git(slot, "status", "--porcelain") == ""
    assert claim(trees, "s1", "t1", "coder-1.3").restores_files
    assert (slot / "unfinished.txt").read_text() == "x\n"
    assert (slot / "a.txt").exists()


@pytest.mark.campaign
@pytest.mark.parametrize("committed", [True, False])
def test_a_submodule_added_by_a_task_is_saved_and_removed(
    trees: Worktrees, library: Path, tmp_path: Path, committed: bool
) -> None:
    slot, root = trees.paths.slot("s1"), trees.paths.root
    git(slot, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(tmp_path / "clean"), "added")
    (slot / "added" / "draft").write_text("not committed\n")
    if committed:
        git(slot, "commit", "-q", "-a", "-m", "add a submodule")
    claim(trees, "s1", "t2", "coder-1.2")
    assert git(slot, "status", "--porcelain") == ""
    assert not (slot / "added").exists()
    fetch_bundle(root, "refs/liza/salvage/t1/coder-1.1-submodules", "added", tmp_path / "clean")
    assert git(tmp_path / "clean", "show", "saved:draft").strip() == "not committed"


@pytest.mark.campaign
def test_a_repository_that_is_no_submodule_stays_in_its_slot(trees: Worktrees, library: Path) -> None:
    subprocess.run(["rm", "-rf", library], check=True)
    library.mkdir()
    (library / "written").write_text("nobody saves this\n")
    claim(trees, "s1", "t2", "coder-1.2")
    assert (library / "written").read_text() == "nobody saves this\n"


@pytest.mark.campaign
def test_submodule_work_is_saved_before_the_slot_is_removed(trees: Worktrees, library: Path, tmp_path: Path) -> None:
    root = trees.paths.root
    saved = [ref for ref in trees.remove_all() if ref.endswith("-submodules")]
    assert (saved, library.exists()) == (["refs/liza/salvage/t1/coder-1.1-submodules"], False)
    assert git(root, "ls-tree", "-r", "--name-only", saved[0]).split() == [".liza-nested/deps/lib.bundle"]
    fetch_bundle(root, saved[0], "deps/lib", tmp_path / "lib")
    assert git(tmp_path / "lib", "show", "saved:draft").strip() == "not committed"
    assert "work of the agent" in git(tmp_path / "lib", "log", "--format=%s", "saved")


def test_remove_all_also_removes_half_made_and_deleted_slots(trees: Worktrees) -> None:
    for slot in ("half", "gone"):
        trees.add(slot, "main")
    (trees.paths.root / ".git" / "worktrees" / "half" / "locked").write_text("initializing")
    (trees.paths.slot("half") / ".git").unlink()
    subprocess.run(["rm", "-rf", trees.paths.slot("gone")], check=True)
    assert trees.remove_all() == ()
    assert not any(trees.paths.slots.iterdir())
    assert git(trees.paths.root, "worktree", "list", "--porcelain").count("worktree ") == 1


def test_an_unreadable_owner_file_neither_frees_nor_shares_a_slot(
    trees: Worktrees,
) -> None:
    claim(trees, "s1", "one", "coder-1.1")
    (trees.paths.slot("s1") / "unfinished.txt").write_text("unfinished\n")
    (trees.paths.root / ".git" / "worktrees" / "s1" / "liza").write_text(json.dumps({"task": 1}))
    with pytest.raises(GitFailed, match="cannot be read"):
        trees.owner("s1")
    claim(trees, "s1", "two", "coder-2.1")
    assert status(trees, "s1") == []
    assert git(trees.paths.root, "show", "refs/liza/salvage/one/unknown:unfinished.txt") == "unfinished"


def test_slots_are_found_despite_an_equally_named_worktree(trees: Worktrees, tmp_path: Path) -> None:
    git(trees.paths.root, "worktree", "add", "-q", "--detach", str(tmp_path / "s1"))
    claim(trees, "s1", "one", "coder-1.1")
    assert trees.owner("s1") == ("one", "coder-1.1")
    assert (
        slot_records.find_git_dir(trees.paths.slot("s1"), trees.paths.root / ".git")
        != trees.paths.root / ".git/worktrees/s1"
    )


def test_a_crew_below_a_linked_directory_works(trees: Worktrees, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(trees.paths.root.parent)
    root = tmp_path / "link" / trees.paths.root.name
    linked = Worktrees(Paths(root), Git(root))
    claim(linked, "s1", "one", "coder-1.1")
    assert linked.slot_names() == trees.slot_names() == ("s1",)


def test_a_slot_with_deleted_records_keeps_its_unfinished_files(trees: Worktrees) -> None:
    claim(trees, "s1", "task-3", "coder-1.1")
    tip = commit(trees, "s1", "b.txt")
    (trees.paths.slot("s1") / "unfinished.txt").write_text("unfinished\n")
    (trees.paths.slot("s1") / "a.txt").write_text("changed\n")
    shutil.rmtree(trees.paths.root / ".git" / "worktrees" / "s1")
    assert not trees.exists("s1")
    with pytest.raises(NotOwner):
        trees.assign_run("s1", "task-3", "coder-1.2")

    trees.prepare("s1", "task-3", "coder-1.2", salvage_as="coder-1.1")
    trees.finish("s1", "task-3", "coder-1.2")
    assert trees.head_commit("s1") == tip
    assert status(trees, "s1") == [" M a.txt", "?? unfinished.txt"]
    assert git(trees.paths.root, "show", "refs/liza/salvage/task-3/coder-1.1:unfinished.txt") == "unfinished"


def _lose_record(trees: Worktrees, slot: str) -> None:
    shutil.rmtree(trees.paths.root / ".git" / "worktrees" / slot)


def test_an_unknown_owners_files_become_no_other_tasks_work(trees: Worktrees) -> None:
    claim(trees, "s1", "task-1", "coder-1.1")
    trees.release("s1", "task-1", "coder-1.1")
    git(trees.paths.root, "switch", "-q", "integration")
    commit_all(trees.paths.root, "merged", {"merged.txt": "of another task\n"})
    # Recreated at the newest commit, the record makes the old files look like a deletion of what was merged since.
    _lose_record(trees, "s1")
    assert trees.repair("s1", git(trees.paths.root, "rev-parse", "integration"))
    assert status(trees, "s1") == [" D merged.txt"]

    claim(trees, "s1", "task-2", "coder-1.2")
    assert status(trees, "s1") == []
    claim(trees, "s2", "task-2", "coder-2.1")
    assert status(trees, "s2") == []
    assert salvages(trees) == ["refs/liza/salvage/s1/unknown"]


def test_files_a_task_never_had_are_not_restored_to_it(trees: Worktrees) -> None:
    claim(trees, "s1", "task-1", "coder-1.1")
    (trees.paths.slot("s1") / "of-task-1.txt").write_text("unfinished\n")
    _lose_record(trees, "s1")

    assert not trees.prepare("s1", "task-2", "coder-2.3", salvage_as="coder-2.2").restores_files
    trees.finish("s1", "task-2", "coder-2.3")
    assert status(trees, "s1") == []
    assert git(trees.paths.root, "show", "refs/liza/salvage/s1/unknown:of-task-1.txt") == "unfinished"
    assert [path.name for path in trees.paths.task_links.iterdir()] == ["task-2"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("is_known", [True, False])
def test_an_unfinished_claim_adds_no_files_of_the_previous_owner(trees: Worktrees, is_known: bool) -> None:
    claim(trees, "s1", "task-1", "coder-1.1")
    (trees.paths.slot("s1") / "of-task-1.txt").write_text("unfinished\n")
    if not is_known:
        _lose_record(trees, "s1")
    # The claimer is killed here, and another coder takes the task with its slot.
    trees.prepare("s1", "task-2", "coder-2.1")
    assert not trees.prepare("s1", "task-2", "coder-3.1", salvage_as="coder-2.1").restores_files
    trees.finish("s1", "task-2", "coder-3.1")
    assert status(trees, "s1") == []
    assert salvages(trees) == ["refs/liza/salvage/task-1/coder-1.1" if is_known else "refs/liza/salvage/s1/unknown"]


@pytest.mark.campaign
def test_an_interrupted_finish_saves_nothing_for_the_previous_owner(
    trees: Worktrees, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(trees, "s2", "task-2", "coder-2.1")
    (trees.paths.slot("s2") / "of-task-2.txt").write_text("unfinished\n")
    claim(trees, "s2", "task-3", "coder-3.1")
    claim(trees, "s1", "task-1", "coder-1.1")
    (trees.paths.slot("s1") / "of-task-1.txt").write_text("unfinished\n")
    assert trees.prepare("s1", "task-2", "coder-2.2").restores_files

    def interrupted(*_: object) -> None:
        raise GitFailed("interrupted")

    with monkeypatch.context() as patch:
        patch.setattr(pool, "mark_restored", interrupted)
        with pytest.raises(GitFailed):
            trees.finish("s1", "task-2", "coder-2.2")
    assert status(trees, "s1") == ["?? of-task-2.txt"]

    claim(trees, "s1", "task-2", "coder-2.3")
    assert status(trees, "s1") == ["?? of-task-2.txt"]
    assert [ref for ref in salvages(trees) if "/task-1/" in ref] == ["refs/liza/salvage/task-1/coder-1.1"]
    claim(trees, "s3", "task-1", "coder-1.2")
    assert status(trees, "s3") == ["?? of-task-1.txt"]


def test_an_unfinished_claim_restores_late_files_of_the_same_task(trees: Worktrees) -> None:
    claim(trees, "s1", "task-1", "coder-1.1")
    assert not trees.prepare("s1", "task-1", "coder-1.2").restores_files
    (trees.paths.slot("s1") / "late.txt").write_text("of a process that was still ending\n")
    assert trees.prepare("s1", "task-1", "coder-1.3").restores_files
    trees.finish("s1", "task-1", "coder-1.3")
    assert status(trees, "s1") == ["?? late.txt"]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "spoiled", ["", "garbage", variant("{}"), variant('{"task": 7, "run": []}'), variant("\0" * 40)]
)
def test_a_slot_with_an_unreadable_owner_is_saved_and_released(trees: Worktrees, spoiled: str) -> None:
    claim(trees, "s1", "task-3", "coder-1.1")
    (trees.paths.slot("s1") / "unfinished.txt").write_text("unfinished\n")
    owner = trees.paths.root / ".git" / "worktrees" / "s1" / "liza"
    owner.write_text(spoiled)
    assert not trees.is_finished("s1", "task-3", "coder-1.1")
    claim(trees, "s1", "task-3", "coder-1.2")
    assert status(trees, "s1") == ["?? unfinished.txt"]

    owner.write_text(spoiled)
    trees.release("s1", "task-3", "coder-1.2")
    assert trees.owner("s1") is None
    assert git(trees.paths.slot("s1"), "rev-parse", "--symbolic-full-name", "HEAD") == "HEAD"
    shown = [git(trees.paths.root, "show", f"{ref}:unfinished.txt") for ref in salvages(trees)]
    assert set(shown) == {"unfinished"}


def test_an_unused_slot_with_damaged_records_is_repaired(
    trees: Worktrees,
) -> None:
    tip = git(trees.paths.root, "rev-parse", "integration")
    claim(trees, "s1", "task-3", "coder-1.1")
    admin = trees.paths.root / ".git" / "worktrees" / "s1"
    assert not trees.repair("s1", tip)
    (admin / "liza").write_text("garbage")
    assert trees.repair("s1", tip)
    assert trees.owner("s1") == ("task-3", "unknown")

    (trees.paths.slot("s1") / "unfinished.txt").write_text("unfinished\n")
    shutil.rmtree(admin)
    assert trees.repair("s1", tip)
    assert trees.exists("s1")
    assert trees.owner("s1") is None
    assert status(trees, "s1") == ["?? unfinished.txt"]
    assert not trees.repair("s1", tip)


def test_unreadable_records_of_other_worktrees_stop_no_command(trees: Worktrees, tmp_path: Path) -> None:
    claim(trees, "s1", "one", "coder-1.1")
    place = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    git(trees.paths.root, "worktree", "add", "-q", "--detach", place)
    admins = trees.paths.root / ".git" / "worktrees"
    (admins / "a-directory" / "gitdir").mkdir(parents=True)
    assert trees.recorded_slots() == ("s1",)
    assert claim(trees, "s2", "two", "coder-2.1").branch == "task/two"


def test_a_pipe_in_place_of_worktree_records_is_not_read(trees: Worktrees) -> None:
    place = trees.paths.root / ".git" / "worktrees" / "a-pipe"
    place.mkdir(parents=True)
    os.mkfifo(place / "gitdir")
    assert (slot_records.recorded_path(place), trees.recorded_slots()) == (None, ())


def test_an_odd_name_beside_an_owner_file_is_left_alone(trees: Worktrees) -> None:
    claim(trees, "s1", "one", "coder-1.1")
    odd = trees.paths.root / ".git" / "worktrees" / "s1" / f"liza.{'9' * 40}"
    odd.touch()
    assert leftovers.remove_temporary_files(trees.paths, trees.git) == ()
    assert odd.exists()


def test_only_temporary_files_of_killed_writers_are_removed(trees: Worktrees) -> None:
    claim(trees, "s1", "one", "coder-1.1")
    with subprocess.Popen(["true"]) as ended:
        pass
    paths, common = trees.paths, trees.paths.root / ".git"
    paths.tx.mkdir()
    places = [paths.tx / "repository", paths.pins, paths.slots_record, common / "info" / "exclude"]
    places += [common / "worktrees" / "s1" / "owner"]
    killed = [place.with_name(f".{place.name}.x7_q2a1b.{ended.pid}") for place in places]
    living = [place.with_name(f".{place.name}.x7_q2a1b.{os.getpid()}") for place in places]
    for path in (*killed, *living):
        path.touch()
    assert set(leftovers.remove_temporary_files(paths, trees.git)) == set(map(str, killed))
    assert [path.exists() for path in (*killed, *living)] == [False] * len(killed) + [True] * len(living)


def test_an_owner_file_with_an_option_as_commit_is_invalid(trees: Worktrees, tmp_path: Path) -> None:
    claim(trees, "s1", "one", "coder-1.1")
    (trees.paths.slot("s1") / "unfinished").write_text("x\n")
    owner = trees.paths.root / ".git" / "worktrees" / "s1" / "liza"
    planted = {"task": "one", "run": "coder-1.1", "done": False, "salvage": f"--output={tmp_path / 'written'}"}
    owner.write_text(json.dumps(planted))
    with pytest.raises(GitFailed) as caught:
        trees.owner("s1")
    assert caught.value.hint == "liza doctor --fix"
    assert claim(trees, "s1", "one", "coder-1.2").restores_files
    assert (trees.paths.slot("s1") / "unfinished").read_text() == "x\n"
    assert not (tmp_path / "written").exists()
