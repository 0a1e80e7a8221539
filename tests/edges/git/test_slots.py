"""liza slots: states, sizes, removal of free slots, repair of damaged ones, and the slot that an agent used last."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import chdir
from pathlib import Path
from typing import Any

import msgspec
import pytest

from liza.box import slot_directories
from liza.git.rules.slot_states import slot_variables
from liza.git.worktrees import measure_bytes
from liza.merging import slot_limits
from liza.merging.merge import merge
from liza.model.configuration import SlotLimits
from liza.model.errors import Refused, UnknownId
from liza.programs.liveness import RunningSession
from liza.programs.session.run_directory import RunRecord
from liza.recovery import slots as verbs
from liza.recovery.doctor import doctor
from liza.system.processes import identify_self
from liza.tasks.claim import claim
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.submit import submit
from liza.tasks.task import add, release
from liza.tasks.verdict import verdict
from tests.campaign import forks
from tests.conftest import git, variant
from tests.edges.merge_crew import Merges, prepared


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a crew, made once and copied for each test."""
    with prepared(tmp_path_factory, ignored="node_modules/\n") as root:
        return root


def rows(crew: Merges) -> dict[str, verbs.SlotRow]:
    return {row.name: row for row in verbs.list_slots(crew.crew).slots}


def states(crew: Merges) -> dict[str, str]:
    return {name: row.state for name, row in rows(crew).items()}


def merged(crew: Merges, *tasks: str) -> None:
    """Tasks that each had a slot of its own, and are merged."""
    crew.approved(*tasks)
    assert crew.merge() == ""


@pytest.mark.campaign
def test_slots_are_listed_with_task_branch_agent_size_and_state(crew: Merges) -> None:
    merged(crew, "a", "b")
    crew.claimed("c", "coder-2")
    listed = rows(crew)
    assert {name: row.state for name, row in listed.items()} == {"merge": "free", "s1": "free", "s2": "busy"}
    busy, free = listed["s2"], listed["s1"]
    assert (busy.task, busy.branch, busy.agent, busy.why) == ("c", "task/c", "coder-2", "c (working)")
    assert (free.task, free.branch, free.agent) == (None, None, "coder-1")
    assert free.age >= 0
    (crew.crew.paths.slot("s1") / "node_modules").mkdir()
    (crew.crew.paths.slot("s1") / "node_modules" / "big").write_bytes(os.urandom(3_000_000))
    assert rows(crew)["s1"].bytes - free.bytes >= 3_000_000


@pytest.mark.campaign
def test_an_agent_gets_the_slot_that_it_used_last(crew: Merges) -> None:
    merged(crew, "a", "b")
    crew.claimed("c", "coder-2")
    assert crew.task("c").worktree == "s2"
    crew.claimed("d", "coder-3")
    assert crew.task("d").worktree == "s1"


@pytest.mark.campaign
def test_prune_removes_only_free_slots_and_claims_recreate_them(crew: Merges) -> None:
    merged(crew, "a", "b", "c")
    crew.claimed("d", "coder-1")
    dirty = crew.crew.paths.slot("s2")
    (dirty / "notes.txt").write_text("mine\n")
    assert states(crew) == {"merge": "free", "s1": "busy", "s2": "dirty", "s3": "free"}
    result = verbs.prune(crew.crew)
    assert result.details["removed"] == ["merge", "s3"]
    assert result.details["bytes"] > 0
    assert states(crew) == {"s1": "busy", "s2": "dirty"}
    assert verbs.prune(crew.crew).result == "unchanged"
    assert (dirty / "notes.txt").read_text() == "mine\n"
    crew.claimed("e", "coder-3")
    assert crew.task("e").worktree == "s2"
    crew.claimed("f", "coder-4")
    assert (crew.crew.paths.slot("s3") / "README.md").exists()


@pytest.mark.campaign
def test_the_size_of_a_slot_includes_files_of_its_boxes(crew: Merges) -> None:
    merged(crew, "a")
    before = rows(crew)
    own = slot_directories.create_directories(crew.crew.paths, "s1", Path.home())
    (own.cache / "big").write_bytes(os.urandom(3_000_000))
    (own.tmp / "closed" / "deep").mkdir(parents=True)
    (own.tmp / "closed").chmod(0)
    after = rows(crew)
    assert after.keys() == before.keys()
    assert after["s1"].bytes - before["s1"].bytes >= 3_000_000
    (disk,) = (finding for finding in doctor(crew.root).findings if finding.about == "disk")
    assert ".boxes" not in disk.text
    assert verbs.repair(crew.crew).message == "no slot is damaged"
    verbs.nuke(crew.crew, "s1")
    assert not own.directory.exists()


@pytest.mark.campaign
def test_a_file_in_place_of_a_slot_is_set_aside(crew: Merges) -> None:
    there = crew.claimed("a")
    release(crew.crew, "a")
    shutil.rmtree(there)
    there.write_text("mine\n")
    claim(crew.crew, "coder-1", "a")
    assert (there / "a.txt").read_text() == "a\n"
    assert there.with_name(f"{there.name}-old").read_text() == "mine\n"


def test_a_killed_claim_holds_neither_its_task_nor_its_agent(crew: Merges) -> None:
    add(crew.crew, [TaskFields("a", "Write", "it is there", "a.txt", "README.md")])
    quiet = crew.check.parent / "quiet"
    assert forks.run(lambda: claim(crew.crew, "coder-1", "a"), "claim.prepared", quiet=quiet) == -signal.SIGKILL
    assert crew.task("a").reservation is not None
    assert claim(crew.crew, "coder-1", "a").task == "a"


@pytest.mark.campaign
def test_nuke_saves_unmerged_work_but_refuses_a_slot_in_use(crew: Merges) -> None:
    merged(crew, "a")
    slot = crew.crew.paths.slot("s1")
    (slot / "notes.txt").write_text("mine\n")
    result = verbs.nuke(crew.crew, "s1")
    (saved,) = result.details["saved"]
    assert git(crew.root, "show", f"{saved}:notes.txt") == "mine"
    assert result.next == f"git show {saved}"
    assert not slot.exists()
    assert "coder-1" in crew.crew.board.read().agents
    crew.claimed("b")
    with pytest.raises(Refused, match=r"s1 is in use: b \(working\)") as refused:
        verbs.nuke(crew.crew, "s1")
    assert refused.value.hint == "liza task release b"
    with pytest.raises(UnknownId, match="there is no slot s7"):
        verbs.nuke(crew.crew, "s7")


@pytest.mark.campaign
def test_a_claim_after_slot_removal_has_its_work_again(crew: Merges) -> None:
    slot = crew.claimed("a")
    head = git(slot, "rev-parse", "HEAD")
    (slot / "notes.txt").write_text("mine\n")
    release(crew.crew, "a")
    run = crew.crew.run_dir("coder-1.1")
    run.create(RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=crew.crew.clock.now(), task="a"))
    living = RunningSession(shim=identify_self(), child=identify_self(), time=crew.crew.clock.now())
    (run.path / "session.json").write_bytes(msgspec.json.encode(living))
    with pytest.raises(Refused, match=r"s1 is in use: the session coder-1\.1 is not over"):
        verbs.nuke(crew.crew, "s1")
    (run.path / "session.json").unlink()
    (saved,) = verbs.nuke(crew.crew, "s1").details["saved"]
    assert saved.startswith("refs/liza/salvage/a/")
    assert not slot.exists()
    assert not crew.crew.paths.task_link("a").is_symlink()
    assert "s1" not in states(crew)
    claim(crew.crew, "coder-2", "a")
    assert crew.task("a").worktree == "s1"
    again = crew.crew.paths.slot("s1")
    assert (git(again, "rev-parse", "HEAD"), (again / "notes.txt").read_text()) == (head, "mine\n")


def test_a_commit_on_no_branch_is_unsaved_work(crew: Merges) -> None:
    merged(crew, "a")
    slot = crew.crew.paths.slot("s1")
    git(slot, "commit", "-q", "--allow-empty", "-m", "mine")
    commit = git(slot, "rev-parse", "HEAD")
    assert rows(crew)["s1"].state == "dirty"
    (saved,) = verbs.nuke(crew.crew, "s1").details["saved"]
    assert git(crew.root, "merge-base", "--is-ancestor", commit, saved) == ""


def deleted(slot: Path) -> None:
    shutil.rmtree(slot)


def moved(slot: Path) -> None:
    slot.rename(slot.parent.parent / "elsewhere")


def linked(slot: Path) -> None:
    moved(slot)
    slot.symlink_to(slot.parent.parent / "elsewhere")


def own_repository(slot: Path) -> None:
    (slot / ".git").write_text("gitdir: /somewhere/else\n")


def unreadable_owner(slot: Path) -> None:
    git_dir = Path((slot / ".git").read_text().split()[1])
    (git_dir / "liza").write_text("{")


DAMAGES = {
    deleted: "its directory is missing",
    moved: "its directory is missing",
    linked: "a link is in its place",
    own_repository: "its .git file names another repository",
    unreadable_owner: "cannot be read",
}


@pytest.mark.campaign
@pytest.mark.parametrize("damage", [linked, deleted, *map(variant, (moved, own_repository, unreadable_owner))])
def test_a_damaged_slot_is_named_repaired_and_usable_again(crew: Merges, damage: Any) -> None:
    merged(crew, "a")
    damage(crew.crew.paths.slot("s1"))
    row = rows(crew)["s1"]
    assert (row.state, row.next) == ("damaged", "liza slots repair s1")
    assert DAMAGES[damage] in row.why
    with pytest.raises(Refused, match="s1 is damaged") as refused:
        verbs.nuke(crew.crew, "s1")
    assert refused.value.hint == "liza slots repair s1"
    assert verbs.prune(crew.crew).details["removed"] == ["merge"]
    assert verbs.repair(crew.crew, "s1").result == "changed"
    assert "s1" not in rows(crew) or states(crew)["s1"] == "free"
    assert verbs.repair(crew.crew).result == "unchanged"
    assert (crew.claimed("b") / "README.md").exists()
    assert crew.task("b").worktree == "s1"


@pytest.mark.campaign
def test_a_persons_directory_among_the_slots_keeps_its_files(crew: Merges) -> None:
    merged(crew, "a")
    stranger = crew.crew.paths.slots / "s9"
    stranger.mkdir()
    (stranger / "mine.txt").write_text("mine\n")
    assert rows(crew)["s9"].why == "git has no record of it"
    verbs.prune(crew.crew)
    assert (stranger / "mine.txt").exists()
    verbs.repair(crew.crew, "s9")
    assert rows(crew)["s9"].state == "dirty"
    (saved,) = verbs.nuke(crew.crew, "s9").details["saved"]
    assert git(crew.root, "show", f"{saved}:mine.txt") == "mine"


def test_a_claimed_task_whose_directory_was_deleted_gets_it_again(crew: Merges) -> None:
    there = crew.claimed("a")
    commit = git(there, "rev-parse", "HEAD")
    shutil.rmtree(crew.crew.paths.slot("s1"))
    assert rows(crew)["s1"].state == "damaged"
    verbs.repair(crew.crew, "s1")
    assert git(crew.crew.paths.slot("s1"), "rev-parse", "HEAD") == commit
    assert states(crew)["s1"] == "busy"


def test_at_the_slot_limit_only_returned_tasks_are_claimed(crew: Merges) -> None:
    crew.configure(slots=SlotLimits(max=1))
    there = crew.claimed("a")
    add(crew.crew, [TaskFields("b", "Write", "it is there", "b.txt", "README.md")])
    with pytest.raises(Refused, match=r"all 1 slots are in use \(config\.slots\.max\)"):
        claim(crew.crew, "coder-2", "b")
    with chdir(there):
        submit(crew.crew)
    verdict(crew.crew, "reject", "1. no", task_id="a")
    claim(crew.crew, "coder-1", "a")
    with chdir(there):
        git(there, "commit", "-q", "--allow-empty", "-m", "again")
        submit(crew.crew)
    verdict(crew.crew, "approve", "fine", task_id="a")
    merge(crew.crew)
    claim(crew.crew, "coder-2", "b")
    assert crew.task("b").worktree == "s1"


@pytest.mark.campaign
def test_over_the_size_limit_the_longest_unused_slot_is_removed(crew: Merges) -> None:
    merged(crew, "a", "b", "c")
    for number, slot in enumerate(("s2", "s1", "s3", "merge")):
        git_dir = Path((crew.crew.paths.slot(slot) / ".git").read_text().split()[1])
        os.utime(git_dir / "liza-last", (1000 + number, 1000 + number))
    size = verbs.list_slots(crew.crew).bytes
    crew.configure(slots=SlotLimits(max_bytes=size - 1))
    crew.claimed("d", "coder-1")
    slot_limits.keep_limit(crew.crew)
    assert states(crew) == {"merge": "free", "s1": "busy", "s3": "free"}
    crew.configure(slots=SlotLimits(max_bytes=1))
    slot_limits.keep_limit(crew.crew)
    assert states(crew) == {"s1": "busy"}
    assert "slots_too_large  the slots need" in crew.alerts()
    assert "none is free. Next: liza slots" in crew.alerts()


def test_tests_and_their_set_up_have_ports_of_their_slot(crew: Merges, tmp_path: Path) -> None:
    crew.configure(sandbox_setup=f'echo "$LIZA_SLOT $LIZA_PORT_BASE" > {tmp_path}/set-up')
    crew.tests(f'echo "$LIZA_SLOT $LIZA_PORT_BASE" > {tmp_path}/tests')
    merged(crew, "a")
    own = slot_variables("merge")
    wanted = f"{own['LIZA_SLOT']} {own['LIZA_PORT_BASE']}\n"
    assert [(tmp_path / name).read_text() for name in ("set-up", "tests")] == [wanted, wanted]


def test_a_file_with_two_names_counts_once(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(os.urandom(1_000_000))
    size = measure_bytes(tmp_path)
    (tmp_path / "two").hardlink_to(tmp_path / "one")
    (tmp_path / "link").symlink_to(tmp_path / "one")
    assert measure_bytes(tmp_path) - size < 100_000
    assert size >= 1_000_000
