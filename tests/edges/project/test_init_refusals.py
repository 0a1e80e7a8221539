"""Repositories that `liza init` refuses: nothing is left, the doctor names the same, and the next step leads out."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from liza.model.errors import LizaError, Refused
from liza.project.baseline import InitOptions
from liza.project.init import init
from liza.recovery.doctor import doctor
from liza.tasks.claim import claim
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.task import add
from tests.conftest import git, variant
from tests.edges.merge_crew import Merges
from tests.journeys.crews import BIN

AHEAD = (
    "git switch -q -c integration; for i in 1 2 3 4; do git commit -q --allow-empty -m work$i; done; git switch -q main"
)
FILTER = """\
printf 'test -f "$(git rev-parse --git-dir)/key" || { echo no key >&2; exit 1; }; cat' > ../crypt; echo k > .git/key
git config filter.crypt.%s "sh $PWD/../crypt"; git config filter.crypt.%s cat; git config filter.crypt.required true
echo 'secret filter=crypt' > .gitattributes; echo s > secret; git add -A; git commit -q -m secret
"""
BARE = "cd ..; git clone -q --bare repo p/.bare; cd p; echo 'gitdir: ./.bare' > .git; git worktree add -q main main"

SITUATIONS = {
    "outside": ("cd ..; mkdir new; cd new", "is not in a git repository"),
    "no commit": ("cd ..; git init -q new; cd new", "has no commit yet"),
    "detached": ("git switch -q --detach", "HEAD is detached"),
    "detached in a rebase": ("git rebase -q -x false --root", "a rebase is in progress in"),
    "detached elsewhere": ("git switch -q --detach; git commit -q --allow-empty -m x", "HEAD is detached"),
    "task": ("git branch task; git branch task-old; git pack-refs --all", "the branch task is in the way"),
    "below": ("git branch integration/api; git branch integration-2", "the branch integration/api is in the way"),
    "case": ("git config core.ignoreCase yes; git branch Integration/api", "the branch Integration/api is in the way"),
    "liza": ("git update-ref refs/liza HEAD", "the ref refs/liza is in the way"),
    "below liza": ("git update-ref refs/liza/integration/x HEAD; git pack-refs --all", "refs/liza/integration/x is in"),
    "symbolic": ("git symbolic-ref refs/heads/integration refs/heads/main", "no record says that Liza created it"),
    "equal": ("git branch integration", "no record says that Liza created it; it has no commit that yours lacks"),
    "ahead": (AHEAD, "it has 4 commits that yours lacks: "),
    "diverged": (f"{AHEAD}; git commit -q --allow-empty -m x", "no record says that Liza created it"),
    "bare": (f"{BARE}", "p/.bare is a bare repository"),
    "bare by accident": ("git config core.bare true", "core.bare is true, but "),
    "worktree of a bare repository": (f"{BARE}; cd main", "p/.bare is a bare repository"),
    "linked": ("git worktree add -q ../linked; cd ../linked", "is in a linked worktree of"),
    "git directory": ("cd .git", "is in the git directory of"),
    "home": ("HOME=$PWD; export HOME", "holds your home directory"),
    "below home": ("HOME=$PWD/..; export HOME; cd ..; git init -q; mkdir -p new/deep; cd new/deep", "holds your home"),
    "smudge": (FILTER % ("smudge", "clean"), "files of filter crypt cannot be checked out in a worktree: {smudge}"),
    "clean": (FILTER % ("clean", "smudge"), "files of filter crypt cannot be checked out in a worktree: {clean}"),
    "tracked": ("mkdir .liza; echo x > .liza/x; git add -f .liza; git commit -q -m x", ".liza is tracked by git"),
}
FAST = ("no commit", "detached", "below", "ahead", "worktree of a bare repository", "home", "smudge")
VALUES = {
    "smudge": "fatal: secret: smudge filter crypt failed · no key",
    "clean": "fatal: secret: clean filter 'crypt' failed · no key",
}


def shell(script: str, here: Path, *, check: bool = True) -> Path:
    """Run a script as a person types it; the directory in which it ends, with HOME as it is there."""
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    words = ["sh", "-c", f'{script}\nprintf "%s\\n%s\\n" "$PWD" "$HOME" > "$REPORT"']
    report = Path(os.environ["HOME"]) / "report"
    done = subprocess.run(
        words, cwd=here, env={**environment, "REPORT": str(report)}, capture_output=True, text=True, check=False
    )
    assert not check or done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    directory, home = report.read_text().splitlines()
    os.environ["HOME"] = home
    return Path(directory).resolve()


def rows(here: Path) -> set[str]:
    return {finding.text for finding in doctor(here).findings if not finding.ok}


def left(here: Path) -> tuple[str, list[str]]:
    return git(here, "for-each-ref"), sorted(path.name for path in here.iterdir())


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.campaign) for name in SITUATIONS]
)
def test_the_next_step_of_a_refused_init_solves_its_problem(
    repo: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("HOME", os.environ["HOME"])  # restored after what the script sets
    script, expected = SITUATIONS[name]
    here = shell(script, repo)
    before = left(here) if name != "outside" else ("", [])
    with pytest.raises(LizaError) as refused:
        init(here, InitOptions("A goal", no_test=True))
    assert expected.format(**VALUES) in refused.value.message
    assert refused.value.message in rows(here)
    assert before == (left(here) if name != "outside" else ("", []))
    there = shell(refused.value.hint.partition("; or ")[0], here)
    if "liza init" not in refused.value.hint:
        init(there, InitOptions("A goal", no_test=True))
    assert (there / ".liza" / "state.yaml").exists()


def test_all_obstacles_are_named_at_once_with_one_command(repo: Path) -> None:
    git(repo, "branch", "task")
    git(repo, "branch", "integration/x")
    git(repo, "switch", "-q", "--detach")
    git(repo, "config", "--global", "--unset", "user.email")
    with pytest.raises(LizaError) as refused:
        init(repo, InitOptions("A goal", no_test=True, worktrees=repo / "slots"))
    head, *lines = refused.value.message.splitlines()
    assert head == "5 things are in the way of a crew here:"
    assert {line.strip() for line in lines[:4]} <= rows(repo)
    shell(refused.value.hint, repo)
    assert (repo / ".liza" / "state.yaml").exists()


@pytest.mark.parametrize(
    "name",
    [
        variant("integration", name="contains HEAD"),
        pytest.param("release/1", marks=pytest.mark.campaign),
    ],
)
def test_an_existing_branch_is_taken_over_only_by_name(repo: Path, name: str) -> None:
    shell(AHEAD.replace("integration", name), repo)
    tip = git(repo, "rev-parse", name)
    facts: dict[str, str] = {}
    init(repo, InitOptions("A goal", no_test=True, integration_branch=name), facts.__setitem__)
    newest = ", ".join(git(repo, "log", "--format=%h %s", "-3", name).splitlines())
    assert f"taken over; it has 4 commits that yours lacks: {newest}, and 1 more; " in facts["branch"]
    assert git(repo, "rev-parse", name) == tip


@pytest.mark.campaign
def test_init_names_commits_of_the_upstream_that_the_branch_lacks(repo: Path) -> None:
    clone = shell("git clone -q . ../clone; git commit -q --allow-empty -m new; cd ../clone; git fetch -q", repo)
    facts: dict[str, str] = {}
    init(clone, InitOptions("A goal", no_test=True), facts.__setitem__)
    text, _, command = facts["behind"].partition(": ")
    assert text == "main lacks 1 commit of origin/main, as last fetched"
    shell(command, clone)
    assert git(clone, "merge-base", "integration", "main") == git(repo, "rev-parse", "main")


@pytest.mark.campaign
def test_a_named_branch_behind_is_moved_by_the_next_step(repo: Path) -> None:
    git(repo, "branch", "integration")
    git(repo, "tag", "main")
    git(repo, "commit", "-q", "--allow-empty", "-m", "more")
    with pytest.raises(Refused, match="is behind main") as refused:
        init(repo, InitOptions("A goal", no_test=True, integration_branch="integration"))
    shell(refused.value.hint, repo)
    assert git(repo, "rev-parse", "refs/heads/integration") == git(repo, "rev-parse", "HEAD")


@pytest.mark.campaign
def test_claim_and_doctor_name_a_filter_that_breaks_later(repo: Path, tmp_path: Path) -> None:
    shell(FILTER.replace('"$(git rev-parse --git-dir)/key"', f"{tmp_path}/key") % ("smudge", "clean"), repo)
    (tmp_path / "key").touch()
    init(repo, InitOptions("A goal", no_test=True))
    (tmp_path / "key").unlink()
    crew = Merges(repo, tmp_path).crew
    add(crew, [TaskFields("a", "Write", "it is there", "a.txt", "README.md")])
    with pytest.raises(LizaError, match="files of filter crypt cannot be checked out in a worktree") as refused:
        claim(crew, "coder-1", "a")
    assert "filter.crypt.smudge" in git(repo, *shlex.split(refused.value.hint)[1:])
    assert any("files of filter crypt cannot be checked out" in row for row in rows(repo))
