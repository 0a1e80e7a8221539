"""Claims that stand still, fail half way, or meet several who put things right at the same moment."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from liza.crew.recorder import record_history
from liza.recovery.doctor import doctor
from liza.recovery.recover import recover_crew
from liza.system import processes
from liza.tasks import claim
from tests.campaign import forks
from tests.campaign.consistency import problems
from tests.campaign.scenes import SCENES, TASK, add, fresh, lapsed, new_slot, used_slot
from tests.journeys.crews import Crew, started

REFUSED = 1
HALTED: list[int] = []


def _at_length(*points: str) -> list[Any]:
    return [pytest.param(point, marks=pytest.mark.campaign) for point in points]


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    with started(tmp_path) as made:
        yield made
    for pid in HALTED:
        forks.kill(pid)
    HALTED.clear()


def halted(crew: Crew, work: Callable[[], object], point: str) -> int:
    """A process of its own that does ``work`` and stands still at ``point``."""
    pid = forks.fork(work, fault=f"{point}:stop", quiet=crew.notes / "said")
    HALTED.append(pid)
    seen = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert seen is not None
    assert seen.si_code == os.CLD_STOPPED, (crew.notes / "said").read_text()
    return pid


def continued(pid: int) -> int:
    os.kill(pid, signal.SIGCONT)
    HALTED.remove(pid)
    return forks.ended(pid)


def wrong(crew: Crew) -> list[str]:
    record_history(fresh(crew.root))
    return problems(crew.root)


@pytest.mark.parametrize(
    "point",
    ["claim.prepared", "git.worktree", *_at_length("claim.reserved", "claim.confirmed", "git.switch")],
)
def test_a_halted_claim_longer_than_its_lease_goes_on(crew: Crew, point: str) -> None:
    scene = new_slot(crew)
    pid = halted(crew, lambda: scene.act(crew.root), point)
    doctor(crew.root, fix=True)
    recover_crew(fresh(crew.root, 4000), "coder-9")
    state = crew.state()
    assert forks.run(lambda: scene.act(crew.root), quiet=crew.notes / "other") == REFUSED
    assert continued(pid) == 0, (crew.notes / "said").read_text()
    assert state.task(TASK) == crew.task(TASK) or point in ("claim.reserved", "git.worktree", "claim.prepared")
    assert crew.task(TASK).assigned_to == "coder-1"
    assert wrong(crew) == []


def test_a_hidden_claimer_that_resumes_after_its_lease_is_refused(
    crew: Crew,
) -> None:
    add(crew.root, TASK)

    def elsewhere() -> None:
        here = processes.identify_self()
        processes.identify_self = lambda: replace(here, host="elsewhere")  # type: ignore[assignment]
        claim.claim_task(fresh(crew.root), "coder-1", TASK)

    pid = halted(crew, elsewhere, "claim.reserved")
    recover_crew(fresh(crew.root), "coder-2")
    assert crew.task(TASK).reservation is not None, "taken back before its lease was over"
    recover_crew(fresh(crew.root, 4000), "coder-2")
    claim.claim_task(fresh(crew.root), "coder-2", TASK)
    admin = crew.root / ".git" / "worktrees" / "s1"
    (crew.paths.task_link(TASK) / "begun.txt").write_text("at work\n")
    before = {path.name: path.read_bytes() for path in admin.iterdir() if path.is_file()}
    owner = (admin / "liza").stat().st_ino

    assert continued(pid) == REFUSED
    assert "coder-1.1 no longer holds the reservation of one" in (crew.notes / "said").read_text()
    assert {path.name: path.read_bytes() for path in admin.iterdir() if path.is_file()} == before
    assert (admin / "liza").stat().st_ino == owner, "the slot bore another run for a while"
    assert (crew.paths.task_link(TASK) / "begun.txt").read_text() == "at work\n"
    assert wrong(crew) == []


def test_a_reservation_whose_pid_was_reused_is_taken_back(crew: Crew) -> None:
    scene = new_slot(crew)
    assert forks.run(lambda: scene.act(crew.root), fault="claim.reserved", quiet=crew.notes / "said") < 0
    held = crew.task(TASK).reservation
    assert held is not None
    with fresh(crew.root).change("coder-1", "reserve", TASK) as tx:
        entry = tx.state.task(TASK)
        assert entry is not None
        tx.state = tx.state.with_task(replace(entry, reservation=replace(held, pid=os.getpid())))
    recover_crew(fresh(crew.root), "doctor")
    assert wrong(crew) == []


def test_failed_claims_never_return_slots_to_their_dropped_tasks(crew: Crew) -> None:
    scene = used_slot(crew)
    code = forks.run(lambda: scene.act(crew.root), fault="claim.prepared:full", quiet=crew.notes / "said")
    assert code == forks.BROKEN
    assert "No space left" in (crew.notes / "said").read_text()
    assert wrong(crew) == []


@pytest.mark.parametrize("point", ["claim.confirmed", *_at_length("claim.reserved", "claim.prepared", "git.switch")])
def test_several_processes_repair_one_crashed_claim_beside_a_new_claimer(crew: Crew, point: str) -> None:
    scene = lapsed(crew)
    assert forks.run(lambda: scene.act(crew.root), fault=point, quiet=crew.notes / "said") < 0
    agents = ("coder-7", "coder-8", "doctor")
    settling = [
        forks.fork(lambda by=by: recover_crew(fresh(crew.root), by), quiet=crew.notes / "said") for by in agents
    ]  # type: ignore[misc]
    racing = forks.fork(lambda: scene.again(crew.root), quiet=crew.notes / "raced")
    assert [forks.ended(pid) for pid in settling] == [0, 0, 0], (crew.notes / "said").read_text()
    if forks.ended(racing) == REFUSED:
        scene.again(crew.root)
    for name, text in scene.uncommitted.items():
        assert (crew.paths.task_link(TASK) / name).read_text() == text
    assert wrong(crew) == []


def test_doctor_leaves_the_worktree_of_a_working_agent_alone(crew: Crew) -> None:
    scene = SCENES["lapsed claim"](crew)
    taken = crew.task(TASK)
    doctor(crew.root, fix=True)
    assert crew.task(TASK) == taken
    for name, text in scene.uncommitted.items():
        assert (crew.paths.task_link(TASK) / name).read_text() == text
    crew.paths.task_link(TASK).unlink()
    doctor(crew.root, fix=True)
    for name, text in scene.uncommitted.items():
        assert (crew.paths.task_link(TASK) / name).read_text() == text
    assert wrong(crew) == []
