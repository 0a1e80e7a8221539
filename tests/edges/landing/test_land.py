"""liza land: a branch of the person moves forward to integration, only after its gates passed, and only by itself."""

from __future__ import annotations

import shlex
import shutil
import signal
from contextlib import chdir
from pathlib import Path

import pytest

from liza.crew.crew import find_crew
from liza.git.integration_tip import find_commits_ahead
from liza.landing.land import describe_landing, land_merge
from liza.landing.sync import sync
from liza.merging.queue import hold
from liza.model.errors import LizaError, NoCrew, Refused, UnknownId
from liza.recovery.recover import recover_crew
from liza.supervisor.down import purge
from liza.tasks.verdict import verdict
from tests.campaign import forks
from tests.conftest import git
from tests.edges.merge_crew import Merges, copied


@pytest.fixture
def crew(made: Path, tmp_path: Path) -> Merges:
    crew = copied(made, tmp_path)
    crew.approved("a", "b")
    assert crew.merge() == ""
    return crew


def landed(crew: Merges, branch: str | None = None) -> str:
    """``liza land --merge``; what it failed with, or nothing."""
    try:
        land_merge(crew.crew, branch)
    except LizaError as error:
        return f"{error.message} → {error.hint}"
    return ""


@pytest.mark.campaign
def test_the_checked_out_branch_and_files_follow_the_tip(crew: Merges) -> None:
    (crew.root / "mine.txt").write_text("mine\n")
    shown = describe_landing(crew.crew)
    assert (shown["branch"], shown["ahead"], shown["behind"], shown["tasks"]) == ("main", 4, 0, ["a", "b"])
    assert shown["next"] == "liza land --merge"
    result = land_merge(crew.crew)
    assert (result.details["tasks"], result.details["tested"]) == (["a", "b"], True)
    assert crew.tip("main") == crew.tip()
    assert {path.name for path in crew.root.glob("*.txt")} == {"a.txt", "b.txt", "mine.txt"}
    assert git(crew.root, "status", "--porcelain") == "?? mine.txt"
    assert land_merge(crew.crew).result == "unchanged"
    assert describe_landing(crew.crew)["next"] == "liza status"


def test_a_landing_names_the_tasks_that_it_leaves(crew: Merges) -> None:
    crew.approved("c", "d")
    hold(crew.crew, "d", "after the release")
    left = [("approved and not merged yet", ["c"]), ("held", ["d"])]
    assert [(group["state"], group["tasks"]) for group in describe_landing(crew.crew)["left"]] == left
    result = land_merge(crew.crew)
    assert [(group["state"], group["tasks"]) for group in result.details["left"]] == left
    assert "1 held: d" in result.message
    assert "1 held: d" in land_merge(crew.crew).message


@pytest.mark.campaign
def test_after_a_landing_the_checked_out_branch_does_not_count(crew: Merges) -> None:
    git(crew.root, "branch", "other")
    land_merge(crew.crew)
    git(crew.root, "switch", "-q", "other")
    ahead = find_commits_ahead(crew.crew.git, crew.crew.board.read(), crew.crew.paths)
    assert ahead is not None
    assert (ahead.branch, ahead.commits) == ("main", 0)
    crew.approved("c")
    assert crew.merge() == ""
    ahead = find_commits_ahead(crew.crew.git, crew.crew.board.read(), crew.crew.paths)
    assert ahead is not None
    assert (ahead.branch, ahead.next) == ("main", "liza land --merge main")
    git(crew.root, "branch", "-q", "-D", "main")
    ahead = find_commits_ahead(crew.crew.git, crew.crew.board.read(), crew.crew.paths)
    assert ahead is not None
    assert ahead.branch == "other"


@pytest.mark.campaign
def test_a_branch_with_commits_of_its_own_is_synced_first(crew: Merges) -> None:
    (crew.root / "own.txt").write_text("own\n")
    git(crew.root, "add", "own.txt")
    git(crew.root, "commit", "-q", "-m", "own")
    before = crew.tip("main")
    assert describe_landing(crew.crew)["next"] == "liza sync main"
    told = landed(crew)
    assert told == (
        "main has commits that integration does not have: they were never tested together → "
        "liza sync main && liza land --merge"
    )
    assert crew.tip("main") == before
    sync(crew.crew, "main")
    assert landed(crew) == ""
    assert crew.tip("main") == crew.tip()
    assert (crew.root / "own.txt").exists()
    assert (crew.root / "a.txt").exists()


@pytest.mark.campaign
def test_a_red_integration_is_not_landed(crew: Merges) -> None:
    before = crew.tip("main")
    crew.tests("echo it is red; exit 1")
    assert "nothing was landed: integration is red: " in landed(crew)
    assert crew.tip("main") == before
    assert not (crew.root / "a.txt").exists()


@pytest.mark.campaign
def test_the_next_step_names_the_branch_that_was_named(crew: Merges) -> None:
    git(crew.root, "switch", "-q", "--detach")
    assert landed(crew).endswith("name the branch to land on → liza land main")
    assert describe_landing(crew.crew, "main")["next"] == "liza land --merge main"
    assert landed(crew, "main") == ""


@pytest.mark.campaign
def test_a_persons_verdict_without_a_task_names_its_command(crew: Merges) -> None:
    crew.submitted(crew.claimed("c"))
    with chdir(crew.root), pytest.raises(Refused) as refused:
        verdict(crew.crew, "approve", "it's fine")
    assert shlex.split(refused.value.hint) == ["liza", "verdict", "approve", "it's fine", "--task", "c"]


@pytest.mark.campaign
def test_land_in_a_linked_worktree_names_the_crews_checkout(crew: Merges, tmp_path: Path) -> None:
    git(crew.root, "worktree", "add", "-q", "--detach", str(tmp_path / "other"))
    with pytest.raises(NoCrew) as refused:
        find_crew(tmp_path / "other")
    assert refused.value.hint == f"cd {crew.root}"


@pytest.mark.campaign
def test_land_names_the_next_step_of_an_unfinished_operation(crew: Merges) -> None:
    git(crew.root, "switch", "-q", "-c", "side")
    for text in ("first\n", "second\n"):
        (crew.root / "side.txt").write_text(text)
        git(crew.root, "add", "side.txt")
        git(crew.root, "commit", "-q", "-m", text)
    git(crew.root, "switch", "-q", "main")
    assert crew.crew.git.run("cherry-pick", "side", codes=(1,)).code == 1
    with chdir(crew.root):
        told = landed(crew)
    assert told == (
        f"main could not be moved: a cherry-pick is in progress in {crew.root}: side.txt has conflicts → "
        "resolve side.txt, then: git add side.txt && git cherry-pick --continue; or: git cherry-pick --abort"
    )
    git(crew.root, "cherry-pick", "--abort")
    assert landed(crew) == ""


@pytest.mark.campaign
def test_changed_files_in_the_way_are_kept_and_named(crew: Merges) -> None:
    (crew.root / "a.txt").write_text("mine\n")
    with chdir(crew.root):
        told = landed(crew)
    assert told == (
        "nothing was landed: main is checked out, and a.txt is in the way (git status --ignored -- a.txt) → "
        "mv a.txt a.txt.saved && liza land --merge"
    )
    assert (crew.root / "a.txt").read_text() == "mine\n"
    assert crew.tip("main") != crew.tip()


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["store.git", ".git"])
def test_a_checkout_with_a_separate_git_directory_also_moves(crew: Merges, tmp_path: Path, name: str) -> None:
    """git calls the git directory, or its parent, the main worktree."""
    (tmp_path / "store").mkdir()
    git(crew.root, "init", "-q", "--separate-git-dir", str(tmp_path / "store" / name))
    assert landed(crew) == ""
    assert (crew.root / "a.txt").exists()
    git(crew.root, "switch", "-q", "integration")
    crew.approved("c")
    assert crew.merge() == ""
    assert (crew.root / "c.txt").read_text() == "c\n"
    assert git(crew.root, "status", "--porcelain") == ""
    purge(crew.crew)
    assert git(crew.root, "branch", "--format=%(refname:short)") == "integration\nmain"


@pytest.mark.campaign
def test_a_checkout_in_a_repository_marked_bare_also_moves(crew: Merges) -> None:
    """Parallel tools leave core.bare behind: git then lists no main checkout."""
    git(crew.root, "config", "core.bare", "true")
    assert landed(crew) == ""
    git(crew.root, "config", "core.bare", "false")
    assert git(crew.root, "status", "--porcelain") == ""
    assert (crew.root / "a.txt").exists()


@pytest.mark.campaign
def test_a_branch_that_moves_during_the_tests_stays(crew: Merges) -> None:
    git(crew.root, "branch", "release", "main")
    tip = git(crew.root, "commit-tree", "-p", "release", "-m", "other", "release^{tree}")
    crew.tests(f"git -C {crew.root} update-ref refs/heads/release {tip}")
    assert landed(crew, "release") == (
        "nothing was landed: release moved while the tests ran → liza land --merge release"
    )
    assert crew.tip("release") == tip
    crew.tests("exit 0")
    assert "has commits that integration does not have" in landed(crew, "release")


@pytest.mark.campaign
def test_land_refuses_a_moved_integration_and_a_missing_branch(crew: Merges) -> None:
    with pytest.raises(UnknownId, match="there is no branch 'nowhere'"):
        land_merge(crew.crew, "nowhere")
    for branch in ("integration", "task/a"):
        git(crew.root, "branch", "-f", "task/a", "main")
        with pytest.raises(Refused, match=f"{branch} is a branch of the crew"):
            land_merge(crew.crew, branch)
    git(crew.root, "switch", "-q", "--detach")
    with pytest.raises(Refused, match="no branch is checked out"):
        land_merge(crew.crew)
    assert describe_landing(crew.crew, "main")["next"] == "liza land --merge main"
    git(crew.root, "switch", "-q", "main")
    git(crew.root, "update-ref", "refs/heads/integration", "main")
    with pytest.raises(Refused, match="integration was moved outside of liza") as refused:
        land_merge(crew.crew)
    assert "liza sync" in refused.value.hint


@pytest.mark.campaign
@pytest.mark.parametrize("checkout", ["main", "release"])
def test_a_killed_landing_leaves_the_old_or_the_tested_tip(crew: Merges, tmp_path: Path, checkout: str) -> None:
    git(crew.root, "branch", "release", "main")
    git(crew.root, "switch", "-q", checkout)
    (crew.root / "mine.txt").write_text("mine\n")
    before, tip = crew.tip("release"), crew.tip()
    template = tmp_path / "template"
    trace = tmp_path / "trace"
    crew.root.rename(template)
    shutil.copytree(template, crew.root, symlinks=True)
    quiet = tmp_path / "said"
    assert forks.run(lambda: land_merge(crew.crew, "release"), trace=trace, quiet=quiet) == 0, quiet.read_text()
    points = forks.passed(trace)
    killed = 0
    for point in points:
        shutil.rmtree(crew.root)
        shutil.copytree(template, crew.root, symlinks=True)
        killed += forks.run(lambda: land_merge(crew.crew, "release"), point, quiet=quiet) == -signal.SIGKILL
        recover_crew(crew.crew, "doctor")
        assert crew.tip("release") in (before, tip), point
        assert git(crew.root, "status", "--porcelain") == "?? mine.txt", point
        assert landed(crew, "release") == "", point
        assert crew.tip("release") == tip, point
        assert (crew.root / "a.txt").exists() == (checkout == "release"), point
    print(f"{killed} of {len(points)} points, {checkout} checked out")
    assert killed >= 20
