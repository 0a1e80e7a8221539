"""Branches whose short names mean something else, too: each command takes the branch, and its next step does."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from liza.git import git_refs
from liza.git.runner import Git, find_remedy
from liza.landing.land import describe_landing, land_merge
from liza.landing.sync import sync
from liza.model.errors import Refused, UnknownId
from liza.tasks.diff import diff
from tests.conftest import git, variant
from tests.edges.merge_crew import Merges, copied


@pytest.fixture
def crew(made: Path, tmp_path: Path) -> Merges:
    """A crew in a repository where tags, a ref, files and a remote have the names of its branches."""
    crew = copied(made, tmp_path)
    for name in ("main", "integration", "task/a"):
        git(crew.root, "tag", name, git(crew.root, "commit-tree", "-m", "elsewhere", "HEAD^{tree}"))
    git(crew.root, "update-ref", "refs/main", "HEAD")
    git(crew.root, "remote", "add", "main", str(crew.root))
    for name in ("main", "integration"):
        (crew.root / name).write_text("a file\n")
    return crew


@pytest.mark.campaign
def test_a_task_reaches_main_where_tags_have_the_same_names(crew: Merges) -> None:
    crew.approved("a")
    assert "a.txt" in diff(crew.crew, "a", stat=True).diff
    assert crew.merge() == ""
    assert describe_landing(crew.crew)["branch"] == "main"
    landed = land_merge(crew.crew)
    assert landed.details["commit"] == git(crew.root, "rev-parse", "refs/heads/main")
    assert git(crew.root, *shlex.split(landed.next)[1:], "--format=%s", "-1").startswith("Merge a")
    git(crew.root, "commit", "-q", "--allow-empty", "-m", "mine")
    synced = sync(crew.crew)
    assert synced.details["branch"] == "main"
    assert "Merge main into integration" in git(crew.root, *shlex.split(synced.next)[1:], "--format=%s", "-1")


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["-x", *map(variant, ["HEAD", "refs/heads/main", "work"])])
def test_a_branch_of_any_name_is_landed_on(crew: Merges, name: str) -> None:
    crew.approved("a")
    assert crew.merge() == ""
    git(crew.root, "update-ref", f"refs/heads/{name}", "refs/heads/main")
    git(crew.root, "symbolic-ref", "HEAD", f"refs/heads/{name}")
    landed = land_merge(crew.crew)
    assert (landed.details["branch"], landed.details["commit"]) == (name, crew.tip("refs/heads/integration"))
    assert crew.tip(f"refs/heads/{name}") == landed.details["commit"]
    assert git(crew.root, *shlex.split(landed.next)[1:], "--format=%H", "-1") == landed.details["commit"]


def test_a_revision_is_no_branch_and_the_hint_names_one(crew: Merges) -> None:
    for act in (land_merge, sync):
        with pytest.raises(UnknownId, match="there is no branch 'main~0'"):
            act(crew.crew, "main~0")
    git(crew.root, "branch", "-m", "main", "trunk")
    git(crew.root, "switch", "-q", "--detach")
    for act, step in ((land_merge, "liza land trunk"), (sync, "liza sync trunk")):
        with pytest.raises(Refused) as refused:
            act(crew.crew)
        assert refused.value.hint == step


@pytest.mark.parametrize(
    ("name", "names", "excluding", "free"),
    [
        ("integration", ["integration/api", "main"], "integration/api", "integration-2"),
        ("a/b", ["a", "a-b"], "a", "a-b-2"),
        ("a/b", ["a/b", "a/c", "a-b"], None, "a-b-2"),
        ("integration", ["Integration/api", "integrations"], None, "integration"),
        ("task-old", ["task-old/x", "task-old-2"], "task-old/x", "task-old-3"),
    ],
)
def test_a_free_name_excludes_no_branch(name: str, names: list[str], excluding: str | None, free: str) -> None:
    assert git_refs.find_excluding(name, names) == excluding
    assert git_refs.find_free_name(name, names) == free


def test_only_an_ambiguous_revision_is_printed_in_full(repo: Path) -> None:
    for name in ("file", "tagged", "a b".replace(" ", "$"), "plain"):
        git(repo, "branch", name)
    git(repo, "tag", "tagged")
    (repo / "file").touch()
    typed = [git_refs.type_revision(Git(repo), name) for name in ("file", "tagged", "a$b", "plain", "none")]
    assert typed == ["refs/heads/file", "refs/heads/tagged", "'a$b'", "plain", "none"]


@pytest.mark.parametrize(
    ("stderr", "remedy"),
    [
        (
            "fatal: detected dubious ownership in repository at '/srv/it''s'\nTo add an exception for this directory, "
            "call:\n\n\tgit config --global --add safe.directory '/srv/it'\\''s'\n",
            "git config --global --add safe.directory '/srv/it'\\''s'",
        ),
        (
            "no key\nerror: external filter 'x' failed 1\nfatal: a b.txt: smudge filter git-crypt failed\n",
            r"git config --show-origin --get-regexp '^filter\.git-crypt\.'",
        ),
        ("fatal: secret: clean filter 'a+b' failed\n", r"git config --show-origin --get-regexp '^filter\.a.b\.'"),
        (
            "git-lfs filter-process: 1: git-lfs: not found\nfatal: the remote end hung up unexpectedly\n",
            r"git config --show-origin --get-regexp '^filter\.'",
        ),
        ("fatal: could not fetch 8dc5e9eda0508c10f2b7908a0116dfad764cf128 from promisor remote\n", "git fetch"),
        ("fatal: not a git repository\n", ""),
    ],
)
def test_git_s_own_remedy_is_the_next_step(stderr: str, remedy: str) -> None:
    assert find_remedy(stderr) == remedy
