"""Conflicts in generated files: made again in the merge slot by their command, or returned with what it printed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from liza.git import candidates
from liza.landing.sync import sync
from liza.merging import epics, gate_log
from liza.merging.merge import merge
from liza.merging.undo import undo
from liza.model.configuration import Confinement, Network
from liza.model.errors import MergeConflict
from liza.model.gates import GENERATOR_RUN, GateOutcome
from liza.model.model import Submission
from liza.recovery.recover import recover_crew
from liza.tasks.claim import claim
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.task import add
from liza.tasks.verdict import verdict
from tests.campaign import forks
from tests.conftest import commit_all, git, variant
from tests.edges.merge_crew import Merges, prepared

LIST = "ls *.txt > list.lock"
"""The generator of these tests: the lock file has the names of all files of tasks."""


def lists(there: Path) -> None:
    """What a task does beside its file: it makes the lock file."""
    names = sorted(path.name for path in there.glob("*.txt"))
    commit_all(there, "list", {"list.lock": "".join(f"{name}\n" for name in names)})


def edits(name: str) -> Callable[[Path], None]:
    """The work of a task that makes the lock file and also writes another one."""

    def work(there: Path) -> None:
        (there / name).write_text(f"by {git(there, 'branch', '--show-current')}\n")
        lists(there)

    return work


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a crew, in which one file and the lock file are there."""
    with prepared(tmp_path_factory, files={"base.txt": "base\n", "list.lock": "base.txt\n"}) as root:
        return root


@pytest.fixture
def listing(crew: Merges) -> Merges:
    """A crew whose lock file is made again by LIST, and whose tests compare it with what is there."""
    crew.configure(generated={"list.lock": LIST})
    crew.tests("ls *.txt | cmp - list.lock")
    return crew


def show(crew: Merges, name: str = "list.lock", at: str = "integration") -> list[str]:
    return git(crew.root, "show", f"{at}:{name}").split()


def test_a_conflict_in_a_generated_file_alone_is_merged(listing: Merges) -> None:
    listing.approved("a", "b", work=lists)
    tip = listing.tip()
    assert listing.merge("a") == ""
    assert listing.merge("b") == ""
    task = listing.task("b")
    assert (task.status, task.tested, task.remarks) == ("MERGED", True, ())
    assert show(listing) == ["a.txt", "b.txt", "base.txt"]
    assert git(listing.root, "rev-parse", "integration^2") == task.review_commit
    assert git(listing.root, "rev-parse", "integration~2") == tip
    message = git(listing.root, "log", "-1", "--format=%(trailers:key=Re-made,valueonly)", "integration")
    assert message.strip() == f"list.lock by {LIST}"
    assert task.history[-1].detail == f"re-made: list.lock by {LIST}"
    assert listing.task("a").history[-1].detail is None
    runs = [run for run in gate_log.read_runs(listing.crew.paths) if run.gate == GENERATOR_RUN]
    assert [(run.subject, run.outcome) for run in runs] == [("b", GateOutcome.RUNNING), ("b", GateOutcome.GREEN)]
    assert git(listing.root, "for-each-ref", "refs/liza/salvage", "refs/liza/candidates") == ""


def test_each_task_of_a_batch_is_made_again_on_the_one_before(listing: Merges) -> None:
    listing.approved("a", "b", "c", work=lists)
    assert listing.merge() == ""
    assert [listing.status(name) for name in "abc"] == ["MERGED"] * 3
    rows = [show(listing, at=str(listing.task(name).merge_commit)) for name in "abc"]
    assert rows == [["a.txt", "base.txt"], ["a.txt", "b.txt", "base.txt"], ["a.txt", "b.txt", "base.txt", "c.txt"]]


BAD = {
    "fails": ("echo no such package; exit 3", "exit 3", "no such package"),
    "is not there": ("no-such-generator", "exit 127", "not found"),
    "hangs": ("echo resolving; sleep 1000", "did not end in time", "resolving"),
    "changes another file": (f"{LIST}; echo x > README.md", "also changed README.md", ""),
    "adds a file": (f"{LIST}; echo x > list.log", "also changed list.log", ""),
    "leaves conflict markers": ("printf '<<<<<<< a\\n' > list.lock", "list.lock has conflict markers", ""),
    "deletes it": ("rm list.lock", "list.lock is gone", ""),
    "makes a link": ("ln -sf /etc/passwd list.lock", "list.lock is no regular file any more", ""),
    "makes a pipe": ("rm list.lock; mkfifo list.lock", "list.lock is no regular file any more", ""),
    "commits": (f"{LIST}; git commit -qam x", "left HEAD at", ""),
}


@pytest.mark.parametrize("what", ["fails", *(variant(name) for name in BAD if name != "fails")])
def test_a_generator_without_a_result_returns_the_task_as_a_conflict(listing: Merges, what: str) -> None:
    command, why, output = BAD[what]
    limit = 2 if what == "hangs" else 600
    confinement = Confinement.OFF if what == "commits" else Confinement.AUTO
    listing.configure(generated={"list.lock": command}, integration_timeout=limit, confinement=confinement)
    listing.approved("a", "b", work=lists)
    assert listing.merge("a") == ""
    tip = listing.tip()
    listing.merge("b")
    assert (listing.status("b"), listing.tip()) == ("INTEGRATION_FAILED", tip)
    first, *rest = listing.failure("b").splitlines()
    assert first == "conflict with integration in list.lock"
    assert why in rest[0]
    assert output in "\n".join(rest[1:])
    assert f"git checkout --theirs -- list.lock && {command}" in rest[-1]
    assert git(listing.root, "for-each-ref", "refs/liza/candidates") == ""
    # The slot has nothing that the next merge would see, or that its reset would save as somebody's work.
    listing.approved("c")
    listing.tests("test ! -e list.log")
    assert listing.merge("c") == ""
    if what != "commits":
        assert git(listing.root, "for-each-ref", "refs/liza/salvage") == ""


@pytest.mark.needs("bwrap")
def test_a_generator_without_its_network_returns_the_task_with_the_cause(crew: Merges) -> None:
    command = "bash -c 'echo > /dev/tcp/192.0.2.1/80'"
    crew.configure(
        integration_command="true",
        generated={"list.lock": command},
        confinement=Confinement.REQUIRED,
        network=Network.OFF,
    )
    crew.approved("a", "b", work=lists)
    assert crew.merge("a") == ""
    crew.merge("b")
    assert "it has no network (config.network is off)" in crew.failure("b")
    assert "Network is unreachable" in crew.failure("b")


def test_a_conflict_also_in_other_files_runs_no_generator(listing: Merges) -> None:
    listing.approved("a", "b", work=edits("README.md"))
    assert listing.merge("a") == ""
    listing.merge("b")
    failure = listing.failure("b")
    assert failure.startswith("conflict with integration in README.md, list.lock\nlist.lock is generated: ")
    assert f"git checkout --theirs -- list.lock && {LIST}" in failure
    assert "--- README.md" in failure
    assert "--- list.lock" not in failure
    assert not (listing.crew.paths.logs / "generated-b.log").exists()


def test_no_generator_runs_on_what_a_stranger_wrote(listing: Merges) -> None:
    listing.approved("a", "b", work=lists)
    assert listing.merge("a") == ""
    task = listing.task("b")
    submission = Submission(branch="patch-1", author="ann", is_foreign=True, permitted=task.review_commit)
    with listing.crew.change("human:test", "edit") as tx:
        tx.state = tx.state.with_task(replace(task, submission=submission))
    listing.merge("b")
    assert listing.failure("b").startswith("conflict with integration in list.lock\nlist.lock is generated: ")
    assert not (listing.crew.paths.logs / "generated-b.log").exists()


def test_a_generator_that_fails_in_a_batch_leaves_its_task_to_the_next(listing: Merges) -> None:
    listing.configure(generated={"list.lock": "exit 1"})
    listing.approved("a", "b", work=lists)
    listing.approved("c")
    listing.tests("exit 0")
    assert listing.merge() == ""
    assert [listing.status(name) for name in "abc"] == ["MERGED", "APPROVED", "MERGED"]
    listing.configure(generated={"list.lock": LIST})
    assert listing.merge() == ""
    assert listing.status("b") == "MERGED"


def test_only_generated_files_may_differ_from_the_merge(listing: Merges) -> None:
    listing.approved("a", "b", work=lists)
    listing.merge("a")
    tip, commit = listing.tip(), str(listing.task("b").review_commit)
    there = listing.approved("other")
    git(there, "checkout", "-q", "--detach", tip)

    def resolves(*names: str) -> str:
        git(there, "checkout", "-q", "--detach", tip)
        for name in names:
            (there / name).write_text("another text\n")
        git(there, "add", "-A")
        git(there, "checkout", "-q", commit, "--", "b.txt")
        tree = git(there, "write-tree")
        git(there, "reset", "-q", "--hard")
        return git(there, "commit-tree", tree, "-p", tip, "-p", commit, "-m", "resolved")

    def is_generated(name: str) -> bool:
        return name == "list.lock"

    lock, readme = resolves("list.lock"), resolves("list.lock", "README.md")
    assert candidates.is_merge_of(listing.crew.git, lock, tip, commit, is_generated)
    assert not candidates.is_merge_of(listing.crew.git, readme, tip, commit, is_generated)
    assert not candidates.is_merge_of(listing.crew.git, lock, tip, commit, lambda name: False)


def test_a_generated_file_that_a_branch_deleted_is_a_conflict(listing: Merges) -> None:
    def deletes(there: Path) -> None:
        git(there, "rm", "-q", "list.lock")
        git(there, "commit", "-q", "-m", "no lock")

    listing.tests("exit 0")
    listing.approved("a", work=lists)
    listing.approved("b", work=deletes)
    listing.merge("a")
    listing.merge("b")
    assert listing.failure("b").startswith("conflict with integration in list.lock")
    assert not (listing.crew.paths.logs / "generated-b.log").exists()


@pytest.mark.parametrize("pattern", ["web part/list.lock", variant("*.lock"), variant("web part")])
def test_a_generator_runs_in_the_directory_of_its_file(listing: Merges, pattern: str) -> None:
    def lists_below(there: Path) -> None:
        below = there / "web part"
        below.mkdir(exist_ok=True)
        (below / f"{there.name}.txt").write_text("x\n")
        lists(below)

    listing.configure(generated={pattern: LIST})
    listing.tests("exit 0")
    listing.approved("a", "b", work=lists_below)
    worktrees = [listing.task(name).worktree for name in "ab"]
    listing.merge()
    assert [listing.status(name) for name in "ab"] == ["MERGED"] * 2
    assert show(listing, "web part/list.lock") == sorted(f"{name}.txt" for name in worktrees)


def test_a_generator_that_no_person_confirmed_does_not_run(listing: Merges) -> None:
    listing.approved("a", "b", work=lists)
    listing.merge("a")
    listing.configure(generated={})
    board = listing.crew.paths.state
    board.write_text(board.read_text() + f'  generated: {{"list.lock": "{LIST}"}}\n')
    assert listing.crew.board.read_as_written().config.generated == {"list.lock": LIST}
    listing.merge("b")
    assert listing.failure("b").startswith("conflict with integration in list.lock\n--- list.lock")


POINTS = (
    "spawned.command#1",
    "merge.remade#1",
    "merge.candidate#1",
    "merge.begun#1",
    "merge.tested#1",
    "merge.noted#1",
    "merge.passed#1",
    "merge.advanced#1",
    "merge.merged#1",
)


@pytest.mark.parametrize("point", [POINTS[0], *map(variant, POINTS[1:])])
def test_the_next_merger_completes_what_a_killed_one_began(listing: Merges, point: str, tmp_path: Path) -> None:
    listing.approved("a", "b", work=lists)
    assert listing.merge("a") == ""
    code = forks.run(lambda: merge(listing.crew, "b"), point, quiet=tmp_path / "quiet")
    assert code == -signal.SIGKILL
    recover_crew(listing.crew, "human:test")
    listing.merge()
    assert (listing.status("b"), listing.task("b").tested) == ("MERGED", True)
    assert show(listing) == ["a.txt", "b.txt", "base.txt"]
    subjects = git(listing.root, "log", "--first-parent", "--format=%s", "main..integration").splitlines()
    assert [line.partition(":")[0] for line in subjects] == ["Merge b", "Merge a"]
    assert listing.task("b").history[-1].detail == f"re-made: list.lock by {LIST}"
    assert git(listing.root, "for-each-ref", "refs/liza/candidates", "refs/liza/tested") == ""


def test_an_undo_makes_generated_files_again(listing: Merges) -> None:
    for task in ("a", "b"):
        listing.approved(task, work=lists)
        assert listing.merge(task) == ""
    listing.configure(generated={"list.lock": "exit 1"})
    with pytest.raises(MergeConflict, match="`exit 1` cannot make list"):
        undo(listing.crew, "a")
    listing.configure(generated={"list.lock": LIST})
    undo(listing.crew, "a")
    assert (listing.status("a"), show(listing)) == ("ABANDONED", ["b.txt", "base.txt"])
    assert "Re-made: list.lock" in git(listing.root, "log", "-1", "--format=%B", "integration")


def test_a_sync_makes_generated_files_again(listing: Merges) -> None:
    listing.approved("c", work=lists)
    assert listing.merge("c") == ""
    (listing.root / "main.txt").write_text("x\n")
    lists(listing.root)
    listing.configure(generated={"list.lock": "exit 1"})
    with pytest.raises(MergeConflict, match="`exit 1` cannot make list"):
        sync(listing.crew)
    listing.configure(generated={"list.lock": LIST})
    result = sync(listing.crew)
    assert result.message.endswith(f"re-made: list.lock by {LIST}")
    assert show(listing) == ["base.txt", "c.txt", "main.txt"]


@pytest.mark.parametrize("command", [LIST, "exit 1"])
def test_an_epic_makes_generated_files_again(listing: Merges, command: str) -> None:
    listing.configure(generated={"list.lock": command})
    add(listing.crew, [TaskFields("b", "Write", "it is there", "b.txt", "README.md", epic="shop")])
    claim(listing.crew, "coder-1", "b")
    there = listing.crew.paths.task_link("b").resolve()
    (there / "b.txt").write_text("b\n")
    lists(there)
    listing.submitted(there)
    verdict(listing.crew, "approve", "fine", task_id="b")
    listing.approved("a", work=lists)
    assert listing.merge("a") == ""
    listing.merge("b")
    listing.merge()  # the epic lands
    (row,) = epics.list_epics(listing.crew)
    if command == LIST:
        assert (row.state, show(listing)) == ("landed", ["a.txt", "b.txt", "base.txt"])
        assert "Re-made: list.lock" in git(listing.root, "log", "-1", "--format=%B", "integration")
        return
    mend = next(task for task in listing.crew.board.read().tasks if task.id.startswith("mend-"))
    text = (listing.root / str(mend.spec_ref)).read_text()
    assert "`exit 1` cannot make list.lock again: exit 1" in text
