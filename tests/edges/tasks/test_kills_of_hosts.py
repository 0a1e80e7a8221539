"""A command killed on one host: another host goes on with the task, and nothing that was pushed is lost."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from liza.model.model import Status
from liza.recovery import recover
from liza.tasks.claim import claim_task
from tests.campaign import forks
from tests.conftest import git
from tests.edges.several_clones import Hosts


@pytest.fixture
def hosts(made: Path, tmp_path: Path) -> Hosts:
    return Hosts(made, tmp_path)


@pytest.mark.parametrize("point", ["claim.reserved", "claim.prepared", "claim.confirmed", "claim.finished"])
def test_another_host_takes_a_task_whose_claim_was_killed(hosts: Hosts, point: str) -> None:
    hosts.a.add("t1")
    assert forks.run(lambda: claim_task(hosts.a.crew, "coder-1", "t1"), point) == -signal.SIGKILL
    if hosts.a.task("t1").status is Status.CLAIMED:
        hosts.take_over("t1")
    else:
        hosts.b.claim("t1", "coder-2")
    task = hosts.b.task("t1")
    assert (task.status, task.assigned_to, task.worktree, task.reservation) == ("CLAIMED", "coder-2", "b-s1", None)
    assert (hosts.b.crew.paths.slot("b-s1") / "README.md").is_file()
    recover.recover_crew(hosts.a.crew, "coder-1")
    hosts.b.commit(hosts.b.crew.paths.slot("b-s1"), "t1.txt", "t1\n")
    hosts.b.submit(hosts.b.crew.paths.slot("b-s1"))
    assert hosts.a.task("t1").status == "READY_FOR_REVIEW"
    hosts.a.add("t2")
    assert (hosts.a.claim("t2", "coder-1") / "README.md").is_file()


def test_another_host_goes_on_with_what_a_killed_submission_pushed(hosts: Hosts) -> None:
    hosts.a.add("t1")
    there = hosts.a.work("t1", "coder-1")
    assert forks.run(lambda: hosts.a.submit(there), "submit.pushed") == -signal.SIGKILL
    pushed = git(there, "rev-parse", "HEAD")
    assert (hosts.tip("task/t1"), hosts.a.task("t1").status) == (pushed, "CLAIMED")
    hosts.take_over("t1")
    worktree = hosts.b.crew.paths.slot("b-s1")
    assert git(worktree, "rev-parse", "HEAD") == pushed
    hosts.b.submit(worktree)
    assert (hosts.a.task("t1").review_commit, hosts.a.task("t1").status) == (pushed, "READY_FOR_REVIEW")


def test_a_killed_submission_is_completed_by_its_own_run(hosts: Hosts) -> None:
    hosts.a.add("t1")
    there = hosts.a.work("t1", "coder-1")
    assert forks.run(lambda: hosts.a.submit(there), "submit.pushed") == -signal.SIGKILL
    hosts.a.submit(there)
    assert hosts.a.task("t1").review_commit == hosts.tip("task/t1")
