"""What a replaced run left on a host that comes back is at the remote, and nothing is pushed twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from liza.tasks.returned_work import push_saved, save_if_replaced, try_save
from tests.conftest import git
from tests.edges.several_clones import Hosts


@pytest.fixture
def hosts(made: Path, tmp_path: Path) -> Hosts:
    return Hosts(made, tmp_path)


def lose(hosts: Hosts) -> tuple[Path, str]:
    """Host a has a commit and a changed file of t1; then host b gets the task. The worktree, and the run."""
    hosts.a.add("t1")
    there = hosts.a.work("t1", "coder-1")
    hosts.a.submit(there)
    hosts.a.reject("t1")
    there = hosts.a.claim("t1", "coder-1")
    run = str(hosts.a.task("t1").run)
    hosts.a.commit(there, "half.txt", "committed, and never submitted\n")
    (there / "open.txt").write_text("not committed\n")
    hosts.take_over("t1")
    return there, run


def test_work_of_a_replaced_run_comes_back_as_a_ref(hosts: Hosts) -> None:
    there, run = lose(hosts)
    (ref,) = save_if_replaced(hosts.a.crew, there.name, run)
    assert ref == f"refs/liza/salvage/t1/{run}"
    files = git(hosts.remote, "ls-tree", "-r", "--name-only", ref).splitlines()
    assert {"half.txt", "open.txt", "t1.txt"} <= set(files)
    event = hosts.a.task("t1").history[-1]
    assert (event.event, event.run) == ("saved", run)
    assert ref in str(event.detail)
    assert (there / "open.txt").exists()


def test_the_next_run_on_that_host_begins_with_the_newer_work(hosts: Hosts) -> None:
    there, run = lose(hosts)
    save_if_replaced(hosts.a.crew, there.name, run)
    other = hosts.b.crew.paths.slot(str(hosts.a.task("t1").worktree))
    hosts.b.commit(other, "t1.txt", "better\n")
    hosts.b.submit(other)
    hosts.b.reject("t1")
    again = hosts.a.claim("t1", "coder-1")
    assert (again / "t1.txt").read_text() == "better\n"
    assert not (again / "open.txt").exists()
    assert not (again / "half.txt").exists()


def test_a_run_that_has_its_task_is_left_alone(hosts: Hosts) -> None:
    hosts.a.add("t1")
    there = hosts.a.work("t1", "coder-1")
    assert save_if_replaced(hosts.a.crew, there.name, str(hosts.a.task("t1").run)) == ()
    assert hosts.tip(f"refs/liza/salvage/t1/{hosts.a.task('t1').run}") == ""


def test_pushed_work_is_not_saved_again(hosts: Hosts) -> None:
    hosts.a.add("t1")
    there = hosts.a.work("t1", "coder-1")
    hosts.a.submit(there)
    run = str(hosts.a.task("t1").run)
    hosts.a.reject("t1")
    hosts.b.claim("t1", "coder-2")
    assert save_if_replaced(hosts.a.crew, there.name, run) == ()


def test_saved_work_waits_for_a_remote_that_is_gone(hosts: Hosts) -> None:
    there, run = lose(hosts)
    hosts.remote.rename(hosts.remote.with_name("away.git"))
    try_save(hosts.a.crew, there.name, run)
    assert "saved here, and not pushed" in hosts.a.crew.paths.alerts.read_text()
    hosts.remote.with_name("away.git").rename(hosts.remote)
    assert push_saved(hosts.a.crew) == (f"refs/liza/salvage/t1/{run}",)
    assert hosts.tip(f"refs/liza/salvage/t1/{run}") != ""
    assert push_saved(hosts.a.crew) == ()
