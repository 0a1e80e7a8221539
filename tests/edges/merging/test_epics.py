"""Epics: tasks that are merged into a branch of their own, which lands on integration as one tested commit."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from liza.landing.landed_evidence import verify_branch
from liza.landing.sync import sync
from liza.merging import epics as epic_verbs
from liza.merging.epics import EpicReport
from liza.merging.merge import merge
from liza.merging.merge_recovery import recover_if_dead
from liza.model.configuration import Gate
from liza.model.errors import LizaError, Refused
from liza.model.model import Epic, EpicMerge, EpicStep
from liza.recovery.recover import recover_crew
from liza.supervisor.down import purge
from liza.system import processes
from liza.tasks.claim import claim
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.task import add, drop
from liza.tasks.verdict import verdict
from tests.campaign import forks
from tests.conftest import commit_all, git, variant
from tests.edges.merge_crew import Merges, copied
from tests.servers import Servers, choose_port
from tests.servers import servers as servers


class EpicCrew(Merges):
    """A crew whose tasks have epics or target branches."""

    def add(
        self, task: str, *, depends: tuple[str, ...] = (), epic: str | None = None, target: str | None = None
    ) -> None:
        fields = TaskFields(
            task, "Write", "it is there", f"{task}.txt", "README.md", depends_on=depends, epic=epic, target=target
        )
        add(self.crew, [fields])

    def work(self, task: str, file: str = "", text: str = "") -> None:
        """Claim the task, change a file, submit, approve."""
        self.approve(task, self.worked(task, file=file, text=text))

    def subjects(self) -> list[str]:
        return git(self.root, "log", "--first-parent", "--reverse", "--format=%s", "main..integration").splitlines()

    def branches(self) -> list[str]:
        return git(self.root, "for-each-ref", "--format=%(refname:short)", "refs/heads/epic/").split()

    def epic(self, name: str = "shop") -> EpicReport:
        (row,) = [row for row in epic_verbs.list_epics(self.crew) if row.name == name]
        return row


@pytest.fixture
def crew(made: Path, tmp_path: Path) -> EpicCrew:
    return copied(made, tmp_path, EpicCrew)


def test_an_epic_lands_as_one_commit_after_all_tasks_close(crew: EpicCrew) -> None:
    before = crew.tip()
    for task in ("a", "b", "c"):
        crew.add(task, epic="shop")
    for task in ("a", "b"):
        crew.work(task)
    assert crew.merge() == ""
    assert (crew.status("a"), crew.status("b"), crew.tip()) == ("MERGED", "MERGED", before)
    assert (crew.files("epic/shop"), crew.epic().state) == ({"a.txt", "b.txt"}, "open")
    drop(crew.crew, "c", "not wanted", None, recover_if_dead)
    assert crew.epic().state == "to land"
    assert crew.merge() == ""
    assert crew.subjects() == ["Land the epic shop: 2 tasks"]
    message = git(crew.root, "log", "-1", "--format=%b", "integration")
    assert [line.partition(":")[0] for line in message.split("\n") if line] == ["- a", "- b"]
    assert (crew.task("a").landed, crew.task("b").landed) == (crew.tip(), crew.tip())
    assert git(crew.root, "rev-parse", "integration^1").strip() == before
    assert (crew.files("integration"), crew.branches(), crew.epic().state) == ({"a.txt", "b.txt"}, [], "landed")
    assert git(crew.root, "for-each-ref", "refs/liza/targets/", "refs/liza/candidates/", "refs/liza/tested/") == ""
    assert crew.alarms().keys() <= {"supervisor_gone", "untested_merges"}
    merges = [str(crew.task(name).merge_commit) for name in ("a", "b")]
    assert all(merge in git(crew.root, "notes", "--ref", "liza", "show", crew.tip()) for merge in merges)
    report = verify_branch(crew.root, "integration")
    assert (report["landed"], report["faults"]) == (3, [])


@pytest.mark.campaign
def test_a_task_outside_waits_until_the_epic_has_landed(crew: EpicCrew) -> None:
    crew.add("a", epic="shop")
    crew.add("b", epic="shop")
    crew.add("after", depends=("a",))
    crew.work("a")
    assert crew.merge() == ""
    with pytest.raises(Refused, match="it waits for a"):
        claim(crew.crew, "coder-1", "after")
    crew.work("b")
    assert (crew.merge(), crew.merge()) == ("", "")
    crew.work("after")
    assert crew.merge() == ""
    assert crew.files("integration") == {"a.txt", "b.txt", "after.txt"}


@pytest.mark.campaign
def test_an_epic_is_updated_when_a_task_needs_newer_merges(crew: EpicCrew) -> None:
    crew.add("base")
    crew.add("a", epic="shop", depends=("base",))
    crew.add("b", epic="shop")
    with pytest.raises(Refused, match="it waits for base"):
        claim(crew.crew, "coder-1", "a")
    crew.work("base")
    assert crew.merge() == ""
    with pytest.raises(Refused, match="it waits for base"):
        claim(crew.crew, "coder-1", "a")
    assert crew.merge() == ""
    assert crew.files("epic/shop") == {"base.txt"}
    for task in ("a", "b"):
        crew.work(task)
    assert (crew.merge(), crew.merge()) == ("", "")
    assert crew.subjects()[-1] == "Land the epic shop: 2 tasks"


@pytest.mark.campaign
def test_a_new_epic_has_what_was_merged_before(crew: EpicCrew) -> None:
    crew.add("base")
    crew.work("base")
    assert crew.merge() == ""
    crew.add("a", epic="shop", depends=("base",))
    crew.work("a")
    assert crew.merge() == ""
    assert crew.files("epic/shop") == {"base.txt", "a.txt"}


@pytest.mark.campaign
def test_an_epic_that_conflicts_gets_a_task_resolving_that(crew: EpicCrew) -> None:
    crew.add("a", epic="shop")
    crew.add("b")
    crew.work("a", "same.txt", "of the epic\n")
    crew.work("b", "same.txt", "of the other\n")
    assert (crew.merge("b"), crew.merge("a"), crew.merge()) == ("", "", "")
    (mend,) = [task for task in crew.crew.board.read().tasks if task.id.startswith("mend-shop-")]
    text = (crew.root / mend.spec_ref).read_text()
    assert (mend.status.value, mend.epic) == ("UNCLAIMED", "shop")
    assert "> conflict in same.txt" in text
    assert "of the other" in text
    claim(crew.crew, "coder-1", mend.id)
    there = crew.crew.paths.task_link(mend.id).resolve()
    with pytest.raises(subprocess.CalledProcessError):
        git(there, "merge", "-q", "integration")
    commit_all(there, "both", {"same.txt": "of both\n"})
    crew.submitted(there)
    verdict(crew.crew, "approve", "fine", task_id=mend.id)
    assert (crew.merge(), crew.merge()) == ("", "")
    assert git(crew.root, "show", "integration:same.txt") == "of both"
    assert crew.subjects()[-1] == "Land the epic shop: 2 tasks"


@pytest.mark.campaign
def test_a_red_epic_does_not_land_and_gets_a_task(crew: EpicCrew) -> None:
    before = crew.tip()
    crew.add("a", epic="shop")
    crew.work("a")
    assert crew.merge() == ""
    crew.tests('echo "the total is wrong"; exit 1')
    assert crew.merge() == ""
    (mend,) = [task for task in crew.crew.board.read().tasks if task.id.startswith("mend-shop-")]
    assert "> the total is wrong" in (crew.root / mend.spec_ref).read_text()
    assert (crew.tip(), crew.task("a").landed) == (before, None)
    drop(crew.crew, mend.id, "no", None, recover_if_dead)
    assert "tasks could not make epic/shop merge" in (crew.merge() or crew.alarms()["epic_not_landed"])
    assert "liza merge epic/shop" in crew.alarms()["epic_not_landed"]
    crew.tests("exit 0")
    assert crew.merge("epic/shop") == ""
    assert crew.subjects() == ["Land the epic shop: 1 task"]


@pytest.mark.campaign
def test_gates_of_a_branch_run_on_its_candidates_only(crew: EpicCrew) -> None:
    notes = crew.check.parent / "ran"
    crew.configure(gates=(Gate(name="whole", command=f"echo x >> {notes}", branches=("integration",)),))
    crew.add("a", epic="shop")
    crew.work("a")
    assert crew.merge() == ""
    assert not notes.exists()
    assert crew.merge() == ""
    assert notes.read_text() == "x\n"


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["deleted", variant("moved")])
def test_a_changed_epic_branch_is_an_alarm_and_restored(crew: EpicCrew, name: str) -> None:
    crew.add("a", epic="shop")
    crew.add("b", epic="shop")
    crew.work("a")
    assert crew.merge() == ""
    tip = git(crew.root, "rev-parse", "epic/shop").strip()
    crew.work("b")
    if name == "deleted":
        git(crew.root, "branch", "-D", "epic/shop")
    else:
        git(
            crew.root,
            "branch",
            "-f",
            "epic/shop",
            git(crew.root, "commit-tree", "-p", tip, "-m", "x", f"{tip}^{{tree}}").strip(),
        )
    message = "is gone" if name == "deleted" else "was moved outside of liza"
    assert crew.alarms()["epic_branch"].endswith("→ liza epics restore shop")
    assert message in crew.merge("b")
    assert crew.status("b") == "APPROVED"
    epic_verbs.restore(crew.crew, "shop")
    assert "epic_branch" not in crew.alarms()
    assert git(crew.root, "rev-parse", "epic/shop").strip() == tip
    assert bool(git(crew.root, "for-each-ref", "refs/liza/salvage/epic.shop/")) == (name == "moved")
    assert (crew.merge("b"), crew.merge()) == ("", "")
    assert crew.subjects() == ["Land the epic shop: 2 tasks"]


@pytest.mark.campaign
def test_commits_a_person_accepts_on_an_epic_land_too(crew: EpicCrew) -> None:
    crew.add("a", epic="shop")
    crew.work("a")
    assert crew.merge() == ""
    git(crew.root, "checkout", "-q", "epic/shop")
    commit_all(crew.root, "mine", {"mine.txt": "mine\n"})
    git(crew.root, "checkout", "-q", "main")
    assert "was moved outside of liza" in crew.merge("epic/shop")
    epic_verbs.accept(crew.crew, "shop")
    assert crew.merge("epic/shop") == ""
    assert crew.files("integration") == {"a.txt", "mine.txt"}


def test_a_persons_branch_of_an_epics_name_is_not_taken(crew: EpicCrew) -> None:
    git(crew.root, "branch", "epic/shop")
    with pytest.raises(Refused, match="Liza did not create it"):
        crew.add("a", epic="shop")
    git(crew.root, "branch", "-m", "epic/shop", "epic")
    with pytest.raises(LizaError, match="the branch epic is in the way"):
        crew.add("a", epic="shop")
    assert crew.crew.board.read().task("a") is None


@pytest.mark.campaign
def test_an_epic_begins_again_after_it_has_landed(crew: EpicCrew) -> None:
    for task in ("a", "b"):
        crew.add(task, epic="shop")
        crew.work(task)
        assert (crew.merge(), crew.merge()) == ("", "")
    assert crew.subjects() == ["Land the epic shop: 1 task"] * 2
    assert (crew.files("integration"), len(crew.epic().landed)) == ({"a.txt", "b.txt"}, 2)


def test_tasks_waiting_for_each_other_through_epics_are_refused(crew: EpicCrew) -> None:
    crew.add("a", epic="shop")
    crew.add("outside", depends=("a",))
    with pytest.raises(Refused, match="would wait for itself"):
        crew.add("b", epic="shop", depends=("outside",))


@pytest.mark.campaign
def test_a_target_branch_gets_its_tasks_and_integration_does_not(crew: EpicCrew) -> None:
    git(crew.root, "branch", "release")
    crew.add("fix", target="release")
    crew.add("new")
    with pytest.raises(Refused, match="merged into different branches"):
        crew.add("next", depends=("fix",))
    for task in ("fix", "new"):
        crew.work(task)
    assert (crew.merge(), crew.merge()) == ("", "")
    assert (crew.files("release"), crew.files("integration")) == ({"fix.txt"}, {"new.txt"})
    with pytest.raises(LizaError, match="there is no branch"):
        crew.add("other", target="nowhere")


@pytest.mark.parametrize(("branch", "step"), [("task/a", "liza task show a"), ("epic/shop", "liza epics")])
def test_a_sync_merges_no_work_of_agents_too_early(crew: EpicCrew, branch: str, step: str) -> None:
    crew.add("a", epic="shop")
    claim(crew.crew, "coder-1", "a")
    before = crew.tip()
    with pytest.raises(Refused, match="is the branch of") as refused:
        sync(crew.crew, branch)
    assert (refused.value.hint, crew.tip()) == (step, before)


@pytest.mark.campaign
def test_a_purge_keeps_only_epic_branches_with_unmerged_work(crew: EpicCrew) -> None:
    crew.add("a", epic="shop")
    crew.work("a")
    assert crew.merge() == ""
    crew.add("b", epic="empty")
    done = purge(crew.crew)
    assert "refs/heads/epic/shop" in done.kept_refs
    assert git(crew.root, "for-each-ref", "--format=%(refname)", "refs/heads/epic/") == "refs/heads/epic/shop"


@pytest.mark.campaign
@pytest.mark.parametrize("other", ["not the epic", variant("not a merge of it")])
def test_an_epic_landing_that_an_agent_wrote_is_not_completed(crew: EpicCrew, other: str) -> None:
    crew.add("a", epic="shop")
    crew.work("a")
    assert crew.merge() == ""
    before = crew.tip()
    tree = "main^{tree}"
    foreign = git(crew.root, "commit-tree", "-p", before, "-m", "foreign", tree)
    parent = foreign if other == "not the epic" else "epic/shop"
    forged = git(crew.root, "commit-tree", "-p", before, "-p", parent, "-m", "x", tree)
    merging = EpicMerge(step=EpicStep.LAND, candidate=forged, expected=before, tested=True)
    with crew.crew.change("coder-1", "edit") as tx:
        tx.state = replace(tx.state, epics={"shop": Epic(merging=merging)})
    for ref in ("refs/liza/tested/epic.shop", "refs/liza/candidates/epic.shop", "refs/heads/integration"):
        git(crew.root, "update-ref", ref, forged)
    recover_crew(crew.crew, "coder-1")
    assert (crew.task("a").landed, crew.crew.board.read().epics["shop"].merging) == (None, None)
    assert "integration_moved" in crew.alarms()


@pytest.mark.campaign
def test_an_untested_epic_landing_is_removed_from_integration(crew: EpicCrew) -> None:
    crew.add("a", epic="shop")
    crew.work("a")
    assert crew.merge() == ""
    before = crew.tip()
    kill_at(crew, "epic.begun#1", lambda: merge(crew.crew))
    merging = crew.crew.board.read().epics["shop"].merging
    assert merging is not None
    git(crew.root, "update-ref", "refs/heads/integration", merging.candidate)
    recover_crew(crew.crew, "coder-1")
    assert (crew.tip(), crew.task("a").landed) == (before, None)
    assert "untested_integration" in crew.alerts()
    assert crew.merge("epic/shop") == ""
    assert crew.task("a").landed == crew.tip()


@pytest.mark.campaign
@pytest.mark.parametrize("script", ["exit 0", variant("exit 1")])
def test_an_epic_merged_by_a_person_lands_after_its_tests(crew: EpicCrew, script: str) -> None:
    crew.add("a", epic="shop")
    crew.work("a")
    assert crew.merge() == ""
    git(crew.root, "checkout", "-q", "integration")
    git(crew.root, "merge", "-q", "--no-ff", "-m", "by hand", "epic/shop")
    tip = crew.tip()
    crew.tests(script)
    assert crew.merge("epic/shop") == ""
    assert crew.task("a").landed == (tip if script == "exit 0" else None)
    assert crew.tip() == tip
    mends = [task.id for task in crew.crew.board.read().tasks if task.id.startswith("mend-shop-")]
    assert bool(mends) == (script == "exit 1")


@pytest.mark.campaign
@pytest.mark.skipif(not processes.has_proc(), reason="no /proc")
@pytest.mark.parametrize("by_hand", [True, variant(False)])
def test_an_epic_does_not_land_while_a_foreign_server_listens(crew: EpicCrew, servers: Servers, by_hand: bool) -> None:
    crew.add("a", epic="shop")
    crew.work("a")
    assert crew.merge() == ""
    if by_hand:
        git(crew.root, "checkout", "-q", "integration")
        git(crew.root, "merge", "-q", "--no-ff", "-m", "by hand", "epic/shop")
    tip, port = crew.tip(), choose_port()
    server = servers.start(crew.root, sys.executable, "-m", "http.server", str(port))
    assert crew.merge("epic/shop").endswith(f"of your checkout listens on {port}")
    assert crew.task("a").landed is None
    assert crew.tip() == tip
    servers.end(server)
    assert crew.merge("epic/shop") == ""
    assert crew.task("a").landed == crew.tip()


POINTS = ("candidate", "begun", "noted", "passed", "advanced", "landed", "cleaning")


def kill_at(crew: EpicCrew, point: str, deed: Callable[[], None]) -> None:
    code = forks.run(deed, point, quiet=crew.check.parent / "quiet")
    assert code == -signal.SIGKILL, (point, (crew.check.parent / "quiet").read_text()[-2000:])


@pytest.mark.campaign
@pytest.mark.parametrize("point", [POINTS[4], *(variant(point) for point in POINTS if point != POINTS[4])])
def test_a_killed_epic_landing_happens_once_or_is_undone(crew: EpicCrew, point: str) -> None:
    crew.add("a", epic="shop")
    crew.work("a")
    assert crew.merge() == ""
    kill_at(crew, f"epic.{point}#1", lambda: merge(crew.crew))
    recover_crew(crew.crew, "coder-1")
    crew.merge()
    assert crew.subjects() == ["Land the epic shop: 1 task"]
    assert crew.task("a").landed == crew.tip()
    assert (crew.branches(), crew.crew.board.read().epics["shop"].merging) == ([], None)
    assert "integration_moved" not in crew.alarms()
