"""An undo: of tasks of epics, of the archive, after a landing, beside a person's files, and of what is no merge."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from liza.landing.land import describe_landing, land_merge
from liza.landing.sync import sync
from liza.merging import drift
from liza.merging.undo import undo
from liza.model.errors import LizaError, MergeConflict, UnknownId
from liza.model.model import Event
from liza.recovery.recover import recover_crew
from liza.system.locks import Lock
from liza.tasks import archive
from liza.tasks.claim import claim
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.task import add
from liza.tasks.verdict import verdict
from tests.campaign import forks
from tests.conftest import commit_all, git, variant
from tests.edges.merge_crew import Merges, copied


class UndoCrew(Merges):
    """A crew with merged tasks."""

    def merged(self, *tasks: str, epic: str | None = None, file: str = "", **fields: object) -> None:
        """Tasks that are approved one after the other, and merged together; each writes a file."""
        for task in tasks:
            wanted = TaskFields(task, "Write", "it is there", f"{task}.txt", "README.md", epic=epic, **fields)  # type: ignore[arg-type]
            add(self.crew, [wanted])
        for task in tasks:
            self.approve(task, self.worked(task, file=file))
        assert self.merge() == ""

    def undo(self, task: str, because: str = "") -> str:
        """``liza undo``; what it failed with and its hint, or nothing."""
        before = self.moving()
        try:
            undo(self.crew, task, because)
        except LizaError as error:
            assert self.moving() == before, "a refused undo moved something"
            return f"{error.message} → {error.hint}"
        return ""

    def moving(self) -> tuple[object, ...]:
        """Refs, tasks and the person's files."""
        refs = git(self.root, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        state = self.crew.board.read()
        refs = [ref for ref in refs if not ref.startswith("refs/liza/blackboard")]
        return refs, state.tasks, state.archived, git(self.root, "status", "--porcelain")

    def has_drift(self) -> bool:
        return drift.find_integration_drift(self.crew) is not None


@pytest.fixture
def crew(made: Path, tmp_path: Path) -> UndoCrew:
    return copied(made, tmp_path, UndoCrew)


def test_an_undone_task_is_no_drift_and_later_merges_go_on(crew: UndoCrew) -> None:
    crew.merged("a", "b")
    assert crew.undo("a", "not  now") == ""
    event = crew.task("a").history[-1]
    assert (event.event, event.detail, event.commit) == ("undo", "not now", crew.tip())
    assert git(crew.root, "log", "-1", "--format=%P", "integration") == crew.task("b").merge_commit
    assert not crew.has_drift()
    crew.merged("c")
    assert crew.files() == {"b.txt", "c.txt"}
    git(crew.root, "update-ref", "-d", "refs/liza/integration")
    assert not crew.has_drift()
    assert describe_landing(crew.crew)["tasks"] == ["b", "c"]
    assert crew.undo("a") == ""
    assert crew.alarms().keys() <= {"supervisor_gone", "untested_merges"}


@pytest.mark.campaign
def test_a_task_of_an_open_epic_is_undone_on_its_branch(crew: UndoCrew) -> None:
    before = crew.tip()
    add(crew.crew, [TaskFields("open", "Write", "done", "x", "README.md", epic="shop")])
    crew.merged("a", "b", epic="shop")
    assert crew.undo("a") == ""
    assert (crew.files("epic/shop"), crew.tip(), crew.status("a")) == ({"b.txt"}, before, "ABANDONED")
    claim(crew.crew, "coder-1", "open")
    there = crew.crew.paths.task_link("open").resolve()
    commit_all(there, "work", {"open.txt": "x\n"})
    crew.submitted(there)
    verdict(crew.crew, "approve", "fine", task_id="open")
    assert (crew.merge(), crew.merge()) == ("", "")
    assert crew.files() == {"b.txt", "open.txt"}
    assert [crew.task(name).landed for name in ("a", "b", "open")] == [None, crew.tip(), crew.tip()]
    assert not crew.has_drift()


@pytest.mark.campaign
def test_a_task_of_a_landed_epic_is_undone_alone(crew: UndoCrew) -> None:
    crew.merged("a", "b", epic="shop")
    assert crew.merge() == ""
    assert crew.files() == {"a.txt", "b.txt"}
    assert crew.undo("b") == ""
    assert crew.files() == {"a.txt"}
    assert not crew.has_drift()
    assert describe_landing(crew.crew)["tasks"] == ["a"]


@pytest.mark.campaign
def test_a_merge_that_brought_integration_along_is_refused(crew: UndoCrew) -> None:
    add(crew.crew, [TaskFields("open", "Write", "done", "x", "README.md", epic="shop")])
    crew.merged("outside")
    add(crew.crew, [TaskFields("mix", "Write", "done", "x", "README.md", epic="shop")])
    claim(crew.crew, "coder-1", "mix")
    there = crew.crew.paths.task_link("mix").resolve()
    git(there, "merge", "-q", "--no-edit", "integration")
    commit_all(there, "work", {"mix.txt": "x\n"})
    crew.submitted(there)
    verdict(crew.crew, "approve", "fine", task_id="mix")
    assert crew.merge() == ""
    assert "take back what others brought" in crew.undo("mix")


@pytest.mark.campaign
def test_a_task_with_a_target_is_undone_on_that_branch(crew: UndoCrew) -> None:
    git(crew.root, "branch", "release")
    crew.approved("hotfix", target="release")
    assert crew.merge() == ""
    before = crew.tip()
    assert crew.undo("hotfix") == ""
    assert (crew.files("release"), crew.tip()) == (set(), before)


@pytest.mark.campaign
def test_an_archived_task_comes_back_undone(crew: UndoCrew) -> None:
    crew.merged("a", "b")
    archive.archive(crew.crew)
    crew.tests("exit 1")
    assert "the undo of a is red" in crew.undo("a")
    assert crew.crew.board.read().tasks == ()
    crew.tests("exit 0")
    assert crew.undo("a") == ""
    state = crew.crew.board.read()
    assert ([task.id for task in state.tasks], state.archived.counts) == (["a"], {"MERGED": 1})
    assert (crew.status("a"), crew.files()) == ("ABANDONED", {"b.txt"})
    assert list(archive.find_faults(crew.crew.board, state)) == []
    archive.archive(crew.crew)
    state = crew.crew.board.read()
    assert state.archived.counts == {"ABANDONED": 1, "MERGED": 1}
    assert list(archive.find_faults(crew.crew.board, state)) == []
    assert crew.undo("a") == ""
    assert not crew.has_drift()


@pytest.mark.campaign
def test_dependents_in_the_archive_refuse_an_undo(crew: UndoCrew) -> None:
    crew.merged("a")
    crew.merged("b", depends_on=("a",))
    archive.archive(crew.crew)
    assert crew.undo("a").endswith("→ liza undo b")


def test_a_conflict_names_archived_tasks_and_commits_of_people(crew: UndoCrew) -> None:
    crew.merged("a", file="shared.txt")
    crew.merged("b", file="shared.txt")
    archive.archive(crew.crew)
    with pytest.raises(MergeConflict) as conflict:
        undo(crew.crew, "a")
    assert (conflict.value.files, conflict.value.hint) == (("shared.txt",), "liza undo b")
    assert crew.undo("b") == ""
    git(crew.root, "switch", "-q", "-c", "own", "integration")
    (crew.root / "shared.txt").write_text("mine\n")
    git(crew.root, "commit", "-q", "-a", "-m", "mine")
    git(crew.root, "switch", "-q", "main")
    git(crew.root, "merge", "-q", "-s", "ours", "--no-edit", "own~1")
    git(crew.root, "reset", "-q", "--hard", "main~1")
    sync(crew.crew, "own")
    assert "and not by a task" in crew.undo("a")


@pytest.mark.parametrize("way", ["merge", variant("other branch"), variant("squash")])
def test_a_landed_task_is_left_to_the_person(crew: UndoCrew, way: str) -> None:
    crew.merged("a")
    git(crew.root, "branch", "release")
    if way == "merge":
        land_merge(crew.crew)
    elif way == "other branch":
        land_merge(crew.crew, "release")
    else:
        git(crew.root, "merge", "-q", "--squash", "integration")
        git(crew.root, "commit", "-q", "-m", "all of it")
    refused = crew.undo("a")
    assert f"a has landed: {'release' if way == 'other branch' else 'main'} has its change already" in refused
    for command in refused.partition(" → ")[2].split(" && "):
        words = shlex.split(command)
        if words[0] == "git":
            git(crew.root, *words[1:], *(["--no-edit"] if "revert" in words else []))
        else:
            sync(crew.crew, words[2])
    assert crew.files() == set()
    crew.merged("b")
    assert crew.undo("b") == ""


@pytest.mark.campaign
def test_only_a_merge_of_the_approved_commit_is_undone(crew: UndoCrew) -> None:
    crew.merged("a", "b")
    add(crew.crew, [TaskFields("open", "Write", "done", "x", "README.md")])
    with pytest.raises(UnknownId):
        undo(crew.crew, "nothing")
    assert crew.undo("open").startswith("open is to do and not merged")
    other = crew.task("b").merge_commit
    with crew.crew.change("human:test", "edit") as tx:
        tx.state = tx.state.with_task(replace(crew.task("a"), merge_commit=other))
    assert "is not the merge of the commit of a that was approved" in crew.undo("a")
    git(crew.root, "branch", "-f", "integration", "main")
    assert "was moved outside of liza" in crew.undo("b")


def test_an_agent_cannot_undo(crew: UndoCrew, monkeypatch: pytest.MonkeyPatch) -> None:
    crew.merged("a")
    monkeypatch.setenv("LIZA_RUN", "planner-1.1")
    monkeypatch.setenv("LIZA_ROOT", str(crew.root))
    assert "→" in crew.undo("a")
    assert crew.status("a") == "MERGED"


def test_an_undo_waits_for_no_running_merge(crew: UndoCrew) -> None:
    crew.merged("a")
    lock = Lock(crew.crew.paths.merge_lock)
    lock.acquire(timeout=5)
    try:
        assert crew.undo("a") == "another merge is under way → liza status"
    finally:
        lock.release()


def test_files_of_a_person_are_never_overwritten(crew: UndoCrew) -> None:
    crew.merged("a", "b")
    git(crew.root, "switch", "-q", "integration")
    (crew.root / "a.txt").write_text("mine\n")
    crew.tests(f"echo x >> {crew.check}.ran")
    assert "integration is checked out, and a.txt is in the way" in crew.undo("a")
    assert not Path(f"{crew.check}.ran").exists()
    git(crew.root, "checkout", "-q", "a.txt")
    (crew.root / "b.txt").write_text("mine\n")
    assert crew.undo("a") == ""
    assert not (crew.root / "a.txt").exists()
    assert (crew.root / "b.txt").read_text() == "mine\n"
    assert git(crew.root, "status", "--porcelain") == " M b.txt"


def test_a_branch_that_moves_meanwhile_is_tested_again(crew: UndoCrew) -> None:
    crew.merged("a")
    moves = (
        "[ -e moved ] || { touch moved; git -C $HERE update-ref refs/heads/integration "
        "$(git -C $HERE commit-tree -m mine -p integration integration^{tree}); }"
    )
    crew.tests(moves.replace("moved", f"{crew.check}.moved"))
    assert crew.undo("a") == ""
    subjects = git(crew.root, "log", "-2", "--format=%s", "integration").splitlines()
    assert subjects == ["Undo a: Write", "mine"]


@pytest.mark.campaign
def test_an_undo_that_heals_a_red_branch_ends_its_pause(crew: UndoCrew) -> None:
    crew.merged("a")
    crew.tests("! [ -e a.txt ]")
    crew.approved("b", "c")
    crew.merge("b")
    assert "red without any task" in crew.merge("c")
    assert crew.undo("a") == ""
    assert [crew.task(name).set_aside for name in ("b", "c")] == [None, None]
    assert crew.merge() == ""
    assert crew.files() == {"b.txt", "c.txt"}


@pytest.mark.campaign
def test_what_an_undo_has_already_lost_is_refused(crew: UndoCrew) -> None:
    crew.merged("a")
    git(crew.root, "switch", "-q", "-c", "own", "integration")
    git(crew.root, "revert", "-m", "1", "--no-edit", "HEAD")
    git(crew.root, "switch", "-q", "main")
    sync(crew.crew, "own")
    assert "integration has nothing of the change of a any more" in crew.undo("a")


POINTS = ("tested", "noted", "passed", "advanced", "tip", "recorded")


@pytest.mark.sample(2)
@pytest.mark.parametrize("point", POINTS)
def test_a_killed_undo_is_complete_or_has_not_happened(crew: UndoCrew, point: str) -> None:
    crew.merged("a", "b")
    before = crew.tip()
    code = forks.run(lambda: undo(crew.crew, "a", "not now"), f"undo.{point}", quiet=crew.check.with_name("said"))
    assert code == -signal.SIGKILL
    recover_crew(crew.crew, "doctor")
    is_done = POINTS.index(point) >= POINTS.index("advanced")
    assert (crew.status("a"), crew.tip() == before) == (("ABANDONED", False) if is_done else ("MERGED", True))
    assert crew.task("b").status == "MERGED"
    assert not crew.has_drift()
    refs = git(crew.root, "for-each-ref", "--format=%(refname)", "refs/liza/candidates", "refs/liza/tested")
    assert refs == ""
    event: Event = crew.task("a").history[-1]
    assert not is_done or (event.event, event.detail) == ("undo", "not now")
    assert crew.undo("a") == ""
    assert crew.files() == {"b.txt"}


def test_a_forged_record_of_an_undo_is_removed(crew: UndoCrew) -> None:
    crew.merged("a")
    forks.run(lambda: undo(crew.crew, "a"), "undo.passed", quiet=crew.check.with_name("said"))
    other = crew.tip("main")
    forged = crew.task("a")
    assert forged.undo is not None
    with crew.crew.change("coder-1", "edit") as tx:
        tx.state = tx.state.with_task(replace(forged, undo=replace(forged.undo, commit=other)))
    git(crew.root, "update-ref", "refs/liza/tested/undo.a", other)
    recover_crew(crew.crew, "doctor")
    assert (crew.task("a").undo, crew.status("a")) == (None, "MERGED")
