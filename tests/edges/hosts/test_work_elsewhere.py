"""Work in a worktree of another host: it is named, and neither read nor repaired nor reset here."""

from __future__ import annotations

from pathlib import Path

import pytest

from liza.alarms import current_alarms
from liza.alarms.current_alarms import AlarmKind
from liza.model.errors import Refused
from liza.model.model import Status
from liza.model.value_classes import replace
from liza.recovery import recover
from liza.tasks.claim import claim
from liza.tasks.diff import diff, find_worktree
from liza.tasks.evidence import gather_evidence
from liza.tasks.rules.planning import move_agent
from liza.tasks.task import end_task_work
from liza.view.task_rows import show_task
from tests.edges.several_clones import Host, Hosts


@pytest.fixture
def hosts(made: Path, tmp_path: Path) -> Hosts:
    """Two hosts; coder-1 works on t1 on host a."""
    hosts = Hosts(made, tmp_path)
    hosts.a.add("t1", "t2")
    hosts.a.work("t1", "coder-1")
    return hosts


def find_kinds(host: Host) -> set[AlarmKind]:
    state = host.crew.board.read()
    return {alarm.kind for alarm in current_alarms.find_alarms(host.crew, state, gather_evidence(host.crew, state))}


def test_slots_of_hosts_have_names_of_their_own(hosts: Hosts) -> None:
    hosts.b.claim("t2", "coder-2")
    assert (hosts.a.task("t1").worktree, hosts.b.task("t2").worktree) == ("a-s1", "b-s1")
    assert {name: agent.host for name, agent in hosts.a.crew.board.read().agents.items()} == {
        "coder-1": "a",
        "coder-2": "b",
    }


def test_commands_about_a_worktree_name_its_host(hosts: Hosts) -> None:
    for verb in (lambda: find_worktree(hosts.b.crew, "t1"), lambda: diff(hosts.b.crew, "t1")):
        with pytest.raises(Refused, match="the worktree of t1 is on the host a"):
            verb()
    assert show_task(hosts.b.crew, "t1")["directory"] is None
    assert diff(hosts.a.crew, "t1").directory is not None


def test_a_worktree_of_another_host_is_not_missing(hosts: Hosts) -> None:
    assert AlarmKind.WORKTREE_GONE not in find_kinds(hosts.b)
    assert recover.claims_without_worktree(hosts.b.crew, "coder-2") == []
    recover.recover_crew(hosts.b.crew, "coder-2")
    assert not hosts.b.crew.paths.slot("a-s1").exists()
    assert hosts.b.task("t1").worktree == "a-s1"


def test_ending_a_task_of_another_host_touches_no_worktree(hosts: Hosts) -> None:
    end_task_work(hosts.b.crew, hosts.b.crew.board.read(), "t1")
    assert (hosts.a.crew.paths.slot("a-s1") / "t1.txt").read_text() == "t1\n"


def test_a_moved_agent_gives_back_what_it_held(hosts: Hosts) -> None:
    crew = hosts.b.crew
    with crew.change("coder-1", "start") as tx:
        tx.state = move_agent(tx.state, "coder-1", "b", crew.clock.now())
    task = hosts.b.task("t1")
    assert (task.status, task.run, task.assigned_to) == (Status.UNCLAIMED, None, None)
    assert crew.board.read().agents["coder-1"].host == "b"


def test_a_task_that_moved_leaves_its_old_slot_saved(hosts: Hosts) -> None:
    crew = hosts.b.crew
    with crew.change("coder-1", "start") as tx:
        tx.state = move_agent(tx.state, "coder-1", "b", crew.clock.now())
    hosts.b.claim("t1", "coder-1")
    assert hosts.b.task("t1").worktree == "b-s1"
    repairs = [repair.message for repair in recover.recover_crew(hosts.a.crew, "coder-3")]
    assert "t1 does not need a-s1 any more: saved and released" in repairs
    assert hosts.b.task("t1").worktree == "b-s1"
    assert hosts.b.crew.paths.slot("b-s1").is_dir()


def test_a_clone_that_is_no_host_claims_nothing(hosts: Hosts) -> None:
    with pytest.raises(Refused, match="this clone runs no agents"):
        claim(replace(hosts.b.crew, host=""), "coder-2", "t2")
