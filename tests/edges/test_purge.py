"""What a purge takes out of the repository, and what it keeps because it is nowhere else."""

from __future__ import annotations

from pathlib import Path

from liza.rules.shaping import Wanted
from liza.verbs import tampering
from liza.verbs.claim import claim
from liza.verbs.crew import Crew
from liza.verbs.down import Purged, purge
from liza.verbs.task import add, release
from tests.conftest import git
from tests.edges.test_integration import crew, made  # noqa: F401  # one preparation serves both files


def refs(crew: Crew) -> set[str]:  # noqa: F811
    return set(git(crew.paths.root, "for-each-ref", "--format=%(refname)").split())


def claimed(crew: Crew, task: str = "c") -> Path:  # noqa: F811
    """A task with a commit on its branch that is merged nowhere; its worktree."""
    add(crew, [Wanted(task, "Write", "it is there", f"{task}.txt", "README.md")])
    claim(crew, "coder-1", task)
    there = crew.paths.link(task).resolve()
    (there / f"{task}.txt").write_text("x\n")
    git(there, "add", "-A")
    git(there, "commit", "-q", "-m", f"work on {task}")
    return there


def merged_by_the_person(crew: Crew) -> None:  # noqa: F811
    git(crew.paths.root, "merge", "-q", "--ff-only", "integration")


def test_work_that_is_on_its_tasks_branch_is_kept_once_and_not_as_a_salvage_too(crew: Crew) -> None:  # noqa: F811
    merged_by_the_person(crew)
    claimed(crew)
    done = purge(crew)
    assert done.kept == ("refs/heads/task/c", "refs/liza/blackboard")
    assert refs(crew) == {"refs/heads/main", "refs/heads/task/c", "refs/liza/blackboard"}


def test_a_salvage_that_holds_nothing_goes_and_one_that_holds_a_file_or_a_commit_of_its_own_stays(
    crew: Crew,  # noqa: F811
) -> None:
    merged_by_the_person(crew)
    there = claimed(crew)
    release(crew, "c")
    claim(crew, "coder-2", "c")
    empty = "refs/liza/salvage/c/coder-1.3"
    assert git(crew.paths.root, "diff", "--name-only", f"{empty}^1", empty) == ""
    (there / "unfinished.txt").write_text("unfinished\n")
    git(there, "checkout", "-q", "--detach")
    git(there, "commit", "-q", "--allow-empty", "-m", "on no branch")
    alone = git(there, "rev-parse", "HEAD")
    release(crew, "c")
    claim(crew, "coder-3", "c")
    (there / "unfinished.txt").unlink()
    done = purge(crew)
    assert empty in done.gone
    assert done.kept == ("refs/heads/task/c", "refs/liza/salvage/c/coder-2.1", "refs/liza/blackboard")
    assert git(crew.paths.root, "rev-parse", "refs/liza/salvage/c/coder-2.1^1") == alone
    assert git(crew.paths.root, "show", "refs/liza/salvage/c/coder-2.1:unfinished.txt") == "unfinished"


def test_a_salvage_whose_task_has_lost_its_branch_is_kept_for_the_commit_that_it_stands_on(
    crew: Crew,  # noqa: F811
) -> None:
    merged_by_the_person(crew)
    there = claimed(crew)
    lost = git(there, "rev-parse", "HEAD")
    release(crew, "c")
    claim(crew, "coder-2", "c")
    git(there, "reset", "-q", "--hard", "main")
    assert purge(crew).kept == ("refs/liza/salvage/c/coder-1.3", "refs/liza/blackboard")
    assert git(crew.paths.root, "rev-parse", "refs/liza/salvage/c/coder-1.3^1") == lost


def test_a_purge_after_integration_was_deleted_or_moved_back_loses_no_merge(crew: Crew) -> None:  # noqa: F811
    before = git(crew.paths.root, "rev-parse", "integration")
    git(crew.paths.root, "branch", "-D", "integration")
    done: Purged = purge(crew)
    assert tampering.LEFT in done.kept
    assert git(crew.paths.root, "rev-parse", tampering.LEFT) == before
    assert git(crew.paths.root, "show", f"{tampering.LEFT}:b.txt") == "x"
