"""Worktrees in the middle of an operation of git: what `submit` says, where it leads, and what the next owner gets."""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import chdir
from pathlib import Path

import pytest

from liza.briefs.ready import ready
from liza.model.errors import Refused
from liza.tasks.claim import claim
from liza.tasks.submit import submit
from liza.tasks.task import release
from tests.conftest import commit_all, git, variant
from tests.edges.merge_crew import Merges, prepared

EDIT = "GIT_SEQUENCE_EDITOR='sed -i 1s/pick/edit/' git rebase -q -i HEAD~2"
PATCH = "git format-patch -q --stdout -1 side~2 > ../patch"
SITUATIONS = {
    "a merge": ("git merge side", "f has conflicts"),
    "a merge, resolved but not committed": ("git merge side || (echo 4 > f; git add f)", "git commit --no-edit"),
    "a merge without conflicts": ("git merge -s ours --no-commit side", "git commit --no-edit"),
    "a merge of a deleted file": ("git rm -q f; git commit -qm d; git merge side", "f has conflicts"),
    "a merge, aborted by hand": ("git merge side || git reset -q", "not committed"),
    "a squash merge": ("git merge --squash side", "git restore"),
    "a rebase": ("git rebase side", "git rebase --continue"),
    "a rebase by patches": ("git rebase --apply side", "git rebase --continue"),
    "a rebase by patches, without a change": (
        "git rebase --apply side || (git checkout -q --ours f; git add f)",
        "git rebase --skip",
    ),
    "an edit stop": (EDIT, "git rebase --continue"),
    "an edit stop with a change": (f"{EDIT}; echo 7 > f", "git rebase --continue"),
    "a failed exec": ("git rebase -q -x false HEAD~1", "git rebase --continue"),
    "a rebase, committed by hand": ("git rebase side || git commit -qam x", "git rebase --continue"),
    "am": (f"{PATCH}; git am -q ../patch", "git am --skip"),
    "am with conflicts": (f"{PATCH}; git am -q -3 ../patch", "git am --continue"),
    "a cherry-pick": ("git cherry-pick side~2", "git cherry-pick --continue"),
    "a cherry-pick of three": ("git cherry-pick side~2 side~1 side", "git cherry-pick --continue"),
    "a cherry-pick of three, committed by hand": (
        "git cherry-pick side~2 side~1 side || (echo 4 > f; git commit -qam x)",
        "git cherry-pick --continue",
    ),
    "a cherry-pick without a change": (
        "git cherry-pick side~2 || git read-tree -u --reset HEAD",
        "git cherry-pick --skip",
    ),
    "a cherry-pick without a commit": ("git cherry-pick -n side~2", "git restore"),
    "a revert": ("echo 5 > f; git commit -qam 5; git revert HEAD~2", "git revert --continue"),
    "a revert without a commit": ("git revert -n HEAD", "git revert --continue"),
    "a bisect": ("git bisect start; git bisect bad; git bisect good HEAD~2", "git bisect reset"),
    "stash pop": ("echo 9 > f; git stash -q; echo 8 > f; git commit -qam 8; git stash pop", "git restore"),
    "checkout -m": ("echo 9 > f; git checkout -q --detach; git checkout -q -m side", "git restore"),
    "apply": ("git diff integration side -- f | git apply --3way", "git restore"),
    "a file with a space": ("echo 4 > 'a b'; git add .; git commit -qm ab; git merge side", "'a b' f"),
    "a renamed branch": ("git branch -m other", "git switch -c task/a"),
    "a branch renamed to one below its name": ("git branch -m task/a/b", "git branch -m task/a"),
    "a detached HEAD": ("git switch -q --detach; echo x > x; git add x; git commit -qm x", "git merge --no-edit"),
    "a detached HEAD with changes": ("git switch -q --detach; echo x > x; echo 6 > f", "git add -A"),
    "another branch": (
        "git switch -q -c other; echo x > x; git add x; git commit -qm x; echo 6 > f",
        "git switch --detach",
    ),
    "a branch without a commit": ("git switch -q --orphan x", "git switch task/a"),
    "an older commit": ("git switch -q --detach HEAD~1", "git switch task/a"),
    "conflicts in many files": (
        "for i in {1..12}; do echo a > m$i; done; git add .; git commit -qm a; git switch -q --detach HEAD~1;"
        "for i in {1..12}; do echo b > m$i; done; git add .; git commit -qm b; git switch -q task/a; git merge -",
        "7 more, then: git diff --name-only --diff-filter=U -z | xargs -0 git add --",
    ),
    "a conflict in a name of two lines": (
        "n=$'a\\nb'; echo a > \"$n\"; git add .; git commit -qm a; git switch -q --detach HEAD~1;"
        'echo b > "$n"; git add .; git commit -qm b; git switch -q task/a; git merge -',
        "xargs -0 git add --",
    ),
    "committed markers": ("git merge side || git commit -qam m", "conflict markers (<<<<<<<, =======, >>>>>>>) at f:1"),
}
USUAL = (
    "a merge",
    "a rebase by patches, without a change",
    "am",
    "a cherry-pick of three",
    "stash pop",
    "a detached HEAD",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a crew and a branch ``side`` that changes ``f`` as the tasks do, made once."""
    with prepared(tmp_path_factory) as root:
        for text in ("1", "2"):
            commit_all(root, text, {"f": f"{text}\n"})
            if text == "1":
                git(root, "branch", "-f", "integration")
                git(root, "switch", "-q", "-c", "side")
                (root / "a b").write_text("side\n")
        for name, text in (("g", "2"), ("f", "22")):
            commit_all(root, f"{name} {text}", {name: f"{text}\n"})
        git(root, "switch", "-q", "main")
        return root


def work(crew: Merges) -> Path:
    """The worktree of the task ``a`` with two commits, the first of which changes ``f``."""
    there = crew.claimed("a")
    git(there, "reset", "-q", "--hard", "HEAD~1")
    for name in ("f", "h"):
        commit_all(there, name, {name: "3\n"})
    return there


def run(there: Path, script: str) -> None:
    """Run a script as in a session. It may end in conflicts."""
    environment = {**os.environ, "GIT_EDITOR": ":"}
    subprocess.run(["bash", "-c", script], cwd=there, env=environment, check=False, capture_output=True)


def refusal(crew: Merges, there: Path) -> Refused | None:
    """What `submit` refuses with, or None if the work is submitted."""
    with chdir(there):
        try:
            submit(crew.crew)
        except Refused as error:
            return error
    return None


def follow(there: Path, hint: str, last: bool) -> None:
    """Do what a hint says: resolve the files, and type its commands, or those of its last alternative."""
    first, *others = re.split("; or(?:, if [^:]*)?: ", hint)
    if last and others:
        run(there, others[-1].replace("…", "x"))
        return
    named = [name for name in git(there, "diff", "--name-only", "--diff-filter=U", "-z").split("\0") if name]
    for name in named or ["f"] * hint.startswith("resolve"):
        (there / name).write_text("resolved\n")
    if "by hand" in first:
        (there / "f").write_text("by hand\n")
    run(there, first.rpartition("then: ")[2].replace("…", "x"))


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "last"),
    [
        (pytest.param if name in USUAL and not last else variant)(name, last)
        for name in SITUATIONS
        for last in (False, True)
    ],
)
def test_the_next_step_that_submit_names_leads_to_a_submission(crew: Merges, name: str, last: bool) -> None:
    script, expected = SITUATIONS[name]
    there = work(crew)
    run(there, script)
    hints: list[str] = []
    while (error := refusal(crew, there)) is not None:
        hints.append(f"{error.message} → {error.hint}")
        assert len(hints) < 8, hints
        assert error.hint is not None
        assert "add -A" not in error.hint or not git(there, "ls-files", "-u"), hints
        follow(there, error.hint, last)
    assert expected in hints[0], hints
    assert git(there, "symbolic-ref", "HEAD") == "refs/heads/task/a"
    assert git(there, "status", "--porcelain") == ""
    assert last or "<<<<" not in (there / "f").read_text()
    assert (crew.status("a"), crew.task("a").review_commit) == ("READY_FOR_REVIEW", git(there, "rev-parse", "HEAD"))


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("name", "again"),
    [
        ("a merge", r"a merge is in progress in a: f has conflicts; to begin it again: git merge [0-9a-f]{12}\."),
        variant("a rebase", r"a rebase is in progress in a: f has conflicts; .*: git rebase [0-9a-f]{12}\."),
        variant("an edit stop", "a rebase is in progress in a;"),
        variant("am", r"git am is in progress in a\."),
        ("a cherry-pick of three", "git cherry-pick( [0-9a-f]{7,}){3}"),
        variant("a revert", "a revert is in progress"),
        variant("a bisect", "a bisect is in progress"),
        variant("stash pop", "f has conflicts in a"),
        ("a renamed branch", "left commits that are not on task/a: git merge --no-edit [0-9a-f]{12}"),
        variant("a detached HEAD", "left commits that are not on task/a: git merge --no-edit [0-9a-f]{12}"),
    ],
)
def test_the_next_owner_learns_what_the_last_one_left(
    crew: Merges, name: str, again: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = work(crew)
    run(there, SITUATIONS[name][0])
    head, left = git(there, "rev-parse", "HEAD"), (there / "f").read_bytes()
    release(crew.crew, "a")
    told = claim(crew.crew, "coder-2", "a")
    assert re.search(again, told.message), told.message
    assert git(there, "status", "--porcelain", "--branch") == "## task/a"
    ref = "refs/liza/salvage/a/coder-1.1"
    assert git(crew.root, "rev-parse", f"{ref}^") == head or git(crew.root, "rev-parse", ref) == head
    assert subprocess.run(["git", "show", f"{ref}:f"], cwd=there, capture_output=True, check=True).stdout == left
    monkeypatch.setenv("LIZA_AGENT_ID", "coder-2")
    with chdir(there):
        assert re.search(again, ready(crew.crew).details["brief"])


def test_a_fresh_session_learns_which_git_operation_is_in_progress(crew: Merges) -> None:
    there = work(crew)
    run(there, SITUATIONS["a merge"][0])
    with chdir(there):
        brief = ready(crew.crew).details["brief"]
    assert "UNFINISHED a merge is in progress in a: f has conflicts. resolve f, then: git add f && git commit" in brief


@pytest.mark.sample(1)
@pytest.mark.parametrize("text", ["Title\n=======\n", "<<<<<<< a\nquoted\n", "======= \n>>>>>>> a\n<<<<<<< b\n"])
def test_text_that_only_resembles_a_conflict_is_submitted(crew: Merges, text: str) -> None:
    there = work(crew)
    commit_all(there, "page", {"page.rst": text})
    assert refusal(crew, there) is None
