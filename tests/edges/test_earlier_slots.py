"""Worktrees of an earlier crew, after `git clean` and a second `liza init`: their work is named and saved."""

from __future__ import annotations

from pathlib import Path

import pytest

from liza.crew.crew import Crew, find_crew
from liza.crew.recorder import record_history
from liza.git.rules.slots_location import SlotsRecord
from liza.git.slots import slots_directory
from liza.model.errors import Refused
from liza.project.init import InitOptions, init
from liza.recovery.doctor import doctor
from liza.recovery.restore import find_crew_or_lost, restore
from liza.supervisor.down import purge
from liza.tasks.claim import claim
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.task import add
from tests.conftest import git, variant, worktree_of


def with_draft(root: Path, task: str) -> Crew:
    """Begin a crew with a claimed task and an uncommitted file in its worktree."""
    init(root, InitOptions(goal="It is there", no_test=True))
    crew = find_crew(root)
    add(crew, [TaskFields(task, "Write", "it is there", "a.txt", "README.md")])
    claim(crew, "coder-1", task)
    (crew.paths.slot("s1") / f"{task}.txt").write_text(f"half of {task}\n")
    record_history(crew)
    return crew


def clean(root: Path) -> None:
    git(root, "clean", "-q", "-ffdx")


def two_crews(root: Path) -> Crew:
    with_draft(root, "first")
    clean(root)
    return with_draft(root, "second")


def worktree_paths(root: Path) -> list[str]:
    lines = git(root, "worktree", "list", "--porcelain").splitlines()
    return sorted(line.removeprefix("worktree ") for line in lines if line.startswith("worktree "))


def named(root: Path, *, fix: bool = False) -> str:
    report = doctor(root, fix=fix)
    return "\n".join((*(finding.text for finding in report.findings), *report.repaired))


def in_refs(root: Path, refs: tuple[str, ...], name: str) -> list[str]:
    """Return the content of a file in each of the refs that has it."""
    return [git(root, "show", f"{ref}:{name}") for ref in refs if name in git(root, "ls-tree", "--name-only", ref)]


@pytest.mark.campaign
def test_a_restore_after_a_second_init_uses_the_worktrees_of_the_last_crew_and_names_the_others(repo: Path) -> None:
    two_crews(repo)
    paths = worktree_paths(repo)
    clean(repo)
    restore(find_crew_or_lost_in(repo), last_good=True)
    assert worktree_paths(repo) == paths
    crew = find_crew(repo)
    assert crew.paths.slots == repo.with_name("repo.worktrees-2")
    earlier = repo.with_name("repo.worktrees") / "s1"
    assert f"{earlier} was left by an earlier crew, with the work of first" in named(repo, fix=True)
    assert (worktree_of(repo, "second") / "second.txt").read_text() == "half of second\n"
    assert (earlier / "first.txt").read_text() == "half of first\n"


def find_crew_or_lost_in(root: Path) -> Crew:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        return find_crew_or_lost()


def with_records_at_one_path(root: Path) -> Crew:
    """Leave what a restore of an earlier version left: both records at the path of the first crew's worktree."""
    two_crews(root)
    first = root.with_name("repo.worktrees")
    (root / ".git" / "worktrees" / "s11" / "gitdir").write_text(f"{first}/s1/.git\n")
    mark = slots_directory.read_mark(first)
    assert mark is not None
    slots_directory.write_record(find_crew(root).paths, SlotsRecord(root, first, mark.id, created_by_liza=True))
    return find_crew(root)


@pytest.mark.campaign
def test_doctor_separates_two_worktrees_that_are_recorded_at_one_path_and_the_work_goes_on(repo: Path) -> None:
    crew = with_records_at_one_path(repo)
    second = repo.with_name("repo.worktrees-2") / "s1"
    assert f"git had two worktrees recorded at one path; the record s11 names {second} now" in named(repo, fix=True)
    assert len(set(worktree_paths(repo))) == 3
    # The task goes on in the crew's own directory with its uncommitted file; what was in that slot is saved.
    assert worktree_of(repo, "second").resolve() == crew.paths.slot("s1")
    assert (crew.paths.slot("s1") / "second.txt").read_text() == "half of second\n"
    assert not (crew.paths.slot("s1") / "first.txt").exists()
    assert git(repo, "show", "refs/liza/salvage/first/coder-1.1:first.txt") == "half of first"
    assert (second / "second.txt").read_text() == "half of second\n"
    assert named(repo, fix=True).count("one path") == 0


@pytest.mark.campaign
def test_a_purge_of_two_worktrees_at_one_path_saves_both(repo: Path) -> None:
    done = purge(with_records_at_one_path(repo))
    for task in ("first", "second"):
        assert in_refs(repo, done.kept_refs, f"{task}.txt") == [f"half of {task}"]
    assert worktree_paths(repo) == [str(repo)]
    assert done.left == ()


@pytest.mark.campaign
def test_a_purge_saves_the_files_in_the_worktrees_of_an_earlier_crew_and_names_them(repo: Path) -> None:
    with_draft(repo, "first")
    clean(repo)
    init(repo, InitOptions(goal="It is there", no_test=True))
    done = purge(find_crew(repo))
    assert in_refs(repo, done.kept_refs, "first.txt") == ["half of first"]
    assert not [path for path in repo.parent.iterdir() if path.name.startswith("repo.worktrees")]
    assert worktree_paths(repo) == [str(repo)]


@pytest.mark.campaign
def test_a_purge_leaves_a_worktree_of_an_earlier_crew_that_cannot_be_saved_with_its_branch_and_names_it(
    repo: Path,
) -> None:
    with_draft(repo, "first")
    clean(repo)
    init(repo, InitOptions(goal="It is there", no_test=True))
    slot = repo.with_name("repo.worktrees") / "s1"
    (slot / ".git").unlink()
    git(slot, "init", "-q")
    done = purge(find_crew(repo))
    assert done.left == (str(slot),)
    assert (slot / "first.txt").read_text() == "half of first\n"
    assert "refs/heads/task/first" in done.kept_refs


@pytest.mark.campaign
def test_an_init_that_fails_leaves_the_worktrees_of_an_earlier_crew_alone(repo: Path) -> None:
    with_draft(repo, "first")
    clean(repo)
    with pytest.raises(Refused, match="the tests are red"):
        init(repo, InitOptions(goal="It is there", test="false"))
    assert (repo.with_name("repo.worktrees") / "s1" / "first.txt").read_text() == "half of first\n"
    assert len(worktree_paths(repo)) == 2


def test_a_claim_of_a_task_that_an_earlier_crew_left_goes_on_with_its_files(repo: Path) -> None:
    with_draft(repo, "first")
    clean(repo)
    init(repo, InitOptions(goal="It is there", no_test=True))
    crew = find_crew(repo)
    add(crew, [TaskFields("first", "Write", "it is there", "a.txt", "README.md")])
    claim(crew, "coder-1", "first")
    assert (crew.paths.slot("s1") / "first.txt").read_text() == "half of first\n"
    assert (repo.with_name("repo.worktrees") / "s1" / "first.txt").read_text() == "half of first\n"


@pytest.mark.parametrize("is_merged", [True, variant(False)])
def test_a_purge_after_a_restore_names_the_branch_whose_origin_is_lost(repo: Path, is_merged: bool) -> None:
    with_draft(repo, "first")
    clean(repo)
    restore(find_crew_or_lost_in(repo), last_good=True)
    if not is_merged:
        tree = git(repo, "rev-parse", "main^{tree}")
        git(repo, "branch", "-f", "integration", git(repo, "commit-tree", "-p", "main", "-m", "more", tree))
    done = purge(find_crew(repo))
    assert done.branch == ("integration" if is_merged else None)
    assert ("refs/heads/integration" in done.kept_refs) is not is_merged
    assert "refs/liza/blackboard" in done.kept_refs
