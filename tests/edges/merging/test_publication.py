"""Merges of a crew on several hosts: published at the remote, all or nothing, by the merger that has the term."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from liza.landing.land import land_merge
from liza.landing.sync import sync
from liza.merging import drift
from liza.merging.epics import accept, restore
from liza.merging.merge import merge
from liza.merging.undo import undo
from liza.model.errors import Refused, RemoteUnavailable
from liza.tasks import task_branches
from liza.tasks.claim import claim
from tests.campaign import forks
from tests.conftest import git, until
from tests.edges.several_clones import Hosts, Term
from tests.several_hosts import find_free_port


@pytest.fixture
def hosts(made: Path, tmp_path: Path) -> Hosts:
    return Hosts(made, tmp_path)


def test_a_merge_is_published_at_the_remote(hosts: Hosts) -> None:
    hosts.a.approved("t1")
    assert hosts.b.leads(1).merge("t1") == ""
    task = hosts.a.task("t1")
    assert (task.status, task.merge_commit) == ("MERGED", hosts.tip("integration"))
    assert hosts.b.ref("integration") == task.merge_commit
    assert [each.tasks for each in hosts.publications()] == [(), ("t1",)]
    hosts.check_remote()


def test_a_batch_is_published_at_once(hosts: Hosts) -> None:
    hosts.a.approved("t1", "t2", "t3")
    assert hosts.b.leads(1).merge() == ""
    assert [hosts.a.task(name).status for name in ("t1", "t2", "t3")] == ["MERGED"] * 3
    assert [each.tasks for each in hosts.publications() if each.commit] == [("t1", "t2", "t3")]
    hosts.check_remote()


def test_a_clone_without_the_duty_merges_nothing(hosts: Hosts) -> None:
    hosts.a.approved("t1", "t2")
    assert hosts.b.leads(2).merge("t1") == ""
    hosts.a.leads(1)
    assert "another host: b has the term 2" in hosts.a.merge("t2")
    assert hosts.a.task("t2").status == "APPROVED"


def test_a_board_older_than_its_remote_merges_under_a_newer_term(hosts: Hosts) -> None:
    hosts.a.approved("t1", "t2")
    assert hosts.b.leads(4).merge("t1") == ""
    hosts.a.term = Term("a", 1, is_newest=True)
    assert hosts.a.merge("t2") == ""
    assert [each.term for each in hosts.publications()] == [4, 4, 5, 5]
    assert hosts.a.task("t2").merge_commit == hosts.tip("integration")
    assert "another host: a has the term 5" in hosts.b.merge()


def test_commits_that_a_person_pushed_are_built_upon(hosts: Hosts, tmp_path: Path) -> None:
    hosts.a.approved("t1", "t2")
    assert hosts.b.leads(1).merge("t1") == ""
    theirs = hosts.push(tmp_path, "integration", "theirs.txt")
    assert hosts.b.merge("t2") == ""
    assert git(hosts.remote, "rev-parse", "integration^1") == theirs
    assert hosts.a.task("t2").merge_commit == hosts.tip("integration")


def test_a_push_during_the_tests_makes_a_new_candidate(hosts: Hosts, tmp_path: Path) -> None:
    hosts.a.approved("t1")
    hosts.push(tmp_path, "main", "unused.txt")
    there = tmp_path / "person-unused.txt"
    git(there, "fetch", "-q", "origin", "integration")
    git(there, "switch", "-q", "-c", "integration", "origin/integration")
    git(there, "commit", "-q", "--allow-empty", "-m", "meanwhile")
    hosts.tests(f"git -C {there} push -q origin integration")
    assert hosts.b.leads(1).merge("t1") == ""
    assert git(hosts.remote, "log", "-1", "--format=%s", "integration^1") == "meanwhile"
    assert hosts.a.task("t1").merge_commit == hosts.tip("integration")


POINTS = ("merge.begun", "merge.tested", "merge.noted", "merge.passed", "publish.push#2", "publish.pushed#2")
POINTS += ("merge.advanced", "merge.merged")


@pytest.mark.sample(3)
@pytest.mark.parametrize("point", POINTS)
def test_the_next_host_completes_what_a_killed_merger_began(hosts: Hosts, point: str) -> None:
    hosts.a.approved("t1")
    hosts.a.leads(1)
    assert forks.run(lambda: merge(hosts.a.crew, "t1"), point) == -signal.SIGKILL
    hosts.b.leads(2)
    message = hosts.b.merge("t1")
    task = hosts.a.task("t1")
    assert (task.status, task.merge_commit) == ("MERGED", hosts.tip("integration")), message
    hosts.check_remote()
    assert len([each for each in hosts.publications() if each.commit]) == 1


@pytest.mark.sample(2)
@pytest.mark.parametrize("point", POINTS)
def test_its_own_host_completes_what_a_killed_merger_began(hosts: Hosts, point: str) -> None:
    hosts.a.approved("t1")
    hosts.a.leads(1)
    assert forks.run(lambda: merge(hosts.a.crew, "t1"), point) == -signal.SIGKILL
    message = hosts.a.merge("t1")
    task = hosts.a.task("t1")
    assert (task.status, task.merge_commit) == ("MERGED", hosts.tip("integration")), message
    hosts.check_remote()
    assert len([each for each in hosts.publications() if each.commit]) == 1


@contextmanager
def stopped(work: Callable[[], object], point: str) -> Iterator[int]:
    """A process that does ``work`` and is stopped at a point; its pid. At the end it is killed, if it is there."""
    pid = forks.fork(work, f"{point}:stop")
    try:
        stat = Path(f"/proc/{pid}/stat")
        until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", f"the process is stopped at {point}")
        yield pid
    finally:
        forks.kill(pid)


@pytest.mark.sample(2)
@pytest.mark.parametrize("point", ["merge.tested", "merge.passed", "publish.push#2"])
@pytest.mark.parametrize("task", ["t1", "t2"], ids=["same task", "other task"])
def test_a_merger_that_another_replaced_publishes_nothing(hosts: Hosts, point: str, task: str) -> None:
    hosts.a.approved("t1", "t2")
    hosts.a.leads(1)
    with stopped(lambda: merge(hosts.a.crew, "t1"), point) as pid:
        hosts.b.leads(2)
        assert hosts.b.merge(task) == ""
        published = hosts.tip("integration")
        os.kill(pid, signal.SIGCONT)
        assert forks.ended(pid) == 1
    assert hosts.tip("integration") == published
    hosts.check_remote()
    for name in ("t1", "t2"):
        if hosts.a.task(name).status != "MERGED":
            assert hosts.b.merge(name) == ""
    assert {hosts.a.task(name).status for name in ("t1", "t2")} == {"MERGED"}
    hosts.check_remote()


def test_a_merger_replaced_after_its_push_has_merged(hosts: Hosts) -> None:
    hosts.a.approved("t1", "t2")
    hosts.a.leads(1)
    with stopped(lambda: merge(hosts.a.crew, "t1"), "publish.pushed#2") as pid:
        hosts.b.leads(2)
        assert hosts.b.merge("t2") == ""
        os.kill(pid, signal.SIGCONT)
        forks.ended(pid)
    assert {hosts.a.task(name).status for name in ("t1", "t2")} == {"MERGED"}
    hosts.check_remote()


def test_what_was_fetched_is_no_drift(hosts: Hosts, tmp_path: Path) -> None:
    hosts.a.approved("t1", "t2")
    assert hosts.b.leads(1).merge("t1") == ""
    hosts.a.add("t3")
    hosts.a.claim("t3", "coder-7")
    for host in (hosts.a, hosts.b):
        assert drift.find_integration_drift(host.crew) is None
        assert host.ref("integration") == hosts.tip("integration")
    theirs = hosts.push(tmp_path, "integration", "theirs.txt")
    hosts.a.add("t4")
    hosts.a.claim("t4", "coder-8")
    moved = drift.find_integration_drift(hosts.a.crew)
    assert moved is not None
    assert list(moved.added) == [theirs]
    assert "integration of origin was moved" in moved.message


def test_a_host_that_only_reviews_reports_no_drift(hosts: Hosts) -> None:
    hosts.a.approved("t1")
    hosts.a.add("t2")
    hosts.a.submit(hosts.a.work("t2", "coder-2"))
    assert hosts.a.leads(1).merge("t1") == ""
    claim(hosts.b.crew, "code-reviewer-1", "t2")
    assert drift.find_integration_drift(hosts.b.crew) is None


def test_a_rewritten_remote_stops_merges_until_a_person_decides(hosts: Hosts) -> None:
    hosts.a.approved("t1", "t2")
    assert hosts.b.leads(1).merge("t1") == ""
    published = hosts.tip("integration")
    git(hosts.remote, "update-ref", "refs/heads/integration", f"{published}^1")
    message = hosts.b.merge("t2")
    assert "integration of origin was rewritten" in message
    assert published[:10] in message
    assert hosts.a.task("t2").status == "APPROVED"
    moved = drift.find_integration_drift(hosts.b.crew)
    assert moved is not None
    assert moved.lost_tasks == ("t1",)
    command = drift.recovery_commands(hosts.b.crew.git, moved).split(", or ")[0]
    git(hosts.b.root, *shlex.split(command)[1:])
    assert hosts.tip("integration") == published
    assert hosts.b.merge("t2") == ""
    hosts.check_remote()


def test_a_rewritten_remote_can_be_accepted(hosts: Hosts) -> None:
    hosts.a.approved("t1", "t2")
    assert hosts.b.leads(1).merge("t1") == ""
    git(hosts.remote, "update-ref", "refs/heads/integration", "main")
    with pytest.raises(Refused):
        sync(hosts.b.crew)
    sync(hosts.b.crew, accept_moved=True)
    assert drift.find_integration_drift(hosts.b.crew) is None
    assert hosts.b.merge("t2") == ""
    assert hosts.a.task("t2").merge_commit == hosts.tip("integration")


def test_a_landing_brings_what_other_hosts_merged(hosts: Hosts) -> None:
    hosts.a.approved("t1")
    assert hosts.b.leads(1).merge("t1") == ""
    land_merge(hosts.a.crew)
    assert hosts.a.ref("main") == hosts.tip("integration")
    assert (hosts.a.root / "t1.txt").exists()


def test_a_sync_is_published_at_the_remote(hosts: Hosts) -> None:
    hosts.a.leads(1)
    (hosts.a.root / "mine.txt").write_text("mine\n")
    git(hosts.a.root, "add", "mine.txt")
    git(hosts.a.root, "commit", "-q", "-m", "a person's own")
    sync(hosts.a.crew)
    assert git(hosts.remote, "show", "integration:mine.txt") == "mine"
    assert hosts.publications()[-1].commit == hosts.tip("integration")


def test_an_undo_is_published_at_the_remote(hosts: Hosts) -> None:
    hosts.a.approved("t1")
    assert hosts.b.leads(1).merge("t1") == ""
    undo(hosts.b.crew, "t1")
    assert "t1.txt" not in git(hosts.remote, "ls-tree", "--name-only", "integration")
    assert hosts.a.task("t1").status == "ABANDONED"
    assert hosts.b.ref("integration") == hosts.tip("integration")


def test_a_remote_that_cannot_move_refs_together_is_refused(hosts: Hosts) -> None:
    hosts.a.approved("t1")
    git(hosts.remote, "config", "receive.advertiseAtomic", "false")
    with pytest.raises(Refused, match="cannot move several refs together") as caught:
        merge(hosts.b.leads(1).crew, "t1")
    assert caught.value.hint == f"git -C {hosts.remote} config receive.advertiseAtomic true"
    assert hosts.a.task("t1").status == "APPROVED"
    git(hosts.remote, *shlex.split(caught.value.hint)[3:])
    assert hosts.b.merge("t1") == ""


def test_a_protected_branch_sets_the_task_aside_with_its_reason(hosts: Hosts) -> None:
    hosts.a.approved("t1")
    hook = hosts.remote / "hooks" / "update"
    hook.write_text('#!/bin/sh\n[ "$1" != refs/heads/integration ] || { echo "integration is protected"; exit 1; }\n')
    hook.chmod(0o755)
    assert "integration is protected" in hosts.b.leads(1).merge("t1")
    task = hosts.a.task("t1")
    assert task.status == "APPROVED"
    assert task.set_aside is not None
    assert "integration is protected" in task.set_aside.reason
    hook.unlink()
    assert hosts.b.merge("t1") == ""
    hosts.check_remote()


def test_a_remote_that_is_gone_delays_a_merge_and_blames_no_task(hosts: Hosts) -> None:
    hosts.a.approved("t1")
    hosts.b.leads(1)
    hosts.tests(f"mv {hosts.remote} {hosts.remote}.away")
    with pytest.raises(RemoteUnavailable):
        merge(hosts.b.crew, "t1")
    task = hosts.a.task("t1")
    assert task.status == "APPROVED"
    assert task.set_aside is not None
    assert task.set_aside.hint == "git ls-remote origin"
    hosts.remote.with_name("remote.git.away").rename(hosts.remote)
    hosts.tests("exit 0")
    assert hosts.b.merge("t1") == ""
    hosts.check_remote()


def test_a_checked_out_integration_is_never_moved(hosts: Hosts) -> None:
    hosts.a.approved("t1")
    git(hosts.b.root, "switch", "-q", "integration")
    before = hosts.b.ref("integration")
    assert hosts.b.leads(1).merge("t1") == ""
    assert hosts.b.ref("integration") == before
    assert git(hosts.b.root, "status", "--porcelain", "--untracked-files=no") == ""
    message = hosts.b.merge("t1")
    assert "is checked out" in message or message == ""


def test_an_epic_of_several_hosts_lands_at_the_remote(hosts: Hosts, tmp_path: Path) -> None:
    hosts.push(tmp_path, "integration", "news.txt")
    hosts.a.approved("t1", "t2", epic="pay")
    assert hosts.b.leads(1).merge("t1") == ""
    assert hosts.a.task("t1").merge_commit == hosts.tip("epic/pay")
    assert "t1.txt" not in git(hosts.remote, "ls-tree", "--name-only", "integration")
    hosts.a.leads(2)
    assert hosts.a.merge("t2") == ""
    assert hosts.a.merge("epic/pay") == ""
    names = git(hosts.remote, "ls-tree", "--name-only", "integration").split()
    assert {"t1.txt", "t2.txt"} <= set(names)
    assert {hosts.a.task(name).landed for name in ("t1", "t2")} == {hosts.tip("integration")}
    assert hosts.publications()[-1].tasks == ("epic/pay",)
    assert hosts.tip("epic/pay") == ""
    for host in (hosts.a, hosts.b):
        assert task_branches.find_faults(host.crew) == {}


def test_a_persons_push_to_an_epic_waits_for_a_decision(hosts: Hosts, tmp_path: Path) -> None:
    hosts.a.approved("t1", "t2", "t3", epic="pay")
    assert hosts.b.leads(1).merge("t1") == ""
    published = hosts.tip("epic/pay")
    hosts.push(tmp_path, "epic/pay", "theirs.txt")
    assert "epic/pay was moved outside of liza" in hosts.b.merge("t2")
    restore(hosts.b.crew, "pay")
    assert hosts.tip("epic/pay") == published
    assert hosts.b.merge("t2") == ""
    theirs = hosts.push(tmp_path / "again", "epic/pay", "theirs.txt")
    assert "epic/pay was moved outside of liza" in hosts.b.merge("t3")
    accept(hosts.b.crew, "pay")
    assert hosts.b.merge("t3") == ""
    assert git(hosts.remote, "merge-base", "--is-ancestor", theirs, "epic/pay") == ""


@pytest.fixture
def daemon(hosts: Hosts) -> Iterator[str]:
    """`git daemon` for the remote; the URL of the remote there, which both hosts have."""
    port = find_free_port()
    words = ["git", "daemon", "--reuseaddr", "--export-all", "--enable=receive-pack", "--listen=127.0.0.1"]
    words += [f"--port={port}", f"--base-path={hosts.remote.parent}", str(hosts.remote.parent)]
    process = subprocess.Popen(words, start_new_session=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"git://127.0.0.1:{port}/{hosts.remote.name}"
    until(lambda: subprocess.run(["git", "ls-remote", "-q", url], capture_output=True).returncode == 0, "it listens")
    hosts.use_address(url)
    yield url
    os.killpg(process.pid, signal.SIGTERM)
    process.wait()


def test_a_crew_shares_code_over_a_network_protocol(hosts: Hosts, daemon: str) -> None:
    hosts.a.approved("t1", "t2")
    assert hosts.b.leads(1).merge("t1") == ""
    hosts.a.leads(2)
    assert hosts.a.merge("t2") == ""
    hosts.b.leads(1)
    assert "another host" in hosts.b.merge("t2") or hosts.a.task("t2").status == "MERGED"
    hosts.check_remote()
    assert daemon in git(hosts.a.root, "remote", "get-url", "origin")
