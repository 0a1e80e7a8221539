"""The process of a host against a real PostgreSQL: its lease, who else has its name, and what it wakes."""

from __future__ import annotations

import shutil
import signal
from datetime import timedelta
from uuid import uuid4

import pytest

from liza.board.postgresql.connection import connect
from liza.board.postgresql.hosts_table import HostsTable
from liza.board.postgresql.postgres_board import PostgresBoard
from liza.board.postgresql.signal_rows import channel, read_marks
from liza.board.rules.host_leases import HostLease
from liza.hosts import host_process, lease_file
from liza.hosts.agent_tie import AgentTie
from liza.hosts.host_process import HostProcess, LeftAgents
from liza.model.errors import SupervisedElsewhere, WriteFailed
from liza.model.paths import Paths
from liza.model.value_classes import replace
from liza.programs.session import session_process
from liza.system import file_growth
from liza.system.clock import SystemClock, boottime
from liza.system.locks import Lock
from liza.system.processes import host_name
from tests.conftest import until
from tests.edges.hosts.conftest import MakeHost
from tests.postgresql import PostgreSQL


def test_a_host_has_a_lease_until_it_leaves(make_host: MakeHost) -> None:
    host = make_host("h1")
    lease = host.start_and_wait()
    (row,) = host.table().hosts
    assert (row.name, row.incarnation) == ("h1", lease.incarnation)
    until(lambda: [host.table().hosts[0].token] == [*(host.lease() or lease).tokens], "the token of the last renewal")
    assert row.address.endswith(str(host.paths.root))
    assert boottime() - lease.sent_at < 30
    assert host.stop() == 0
    assert host.table().hosts == ()
    assert host.lease() is None


def test_a_killed_host_process_goes_on_as_the_same_host(make_host: MakeHost) -> None:
    host = make_host("h1")
    before = host.start_and_wait()
    host.stop(signal.SIGKILL)
    assert host.start_and_wait().incarnation == before.incarnation


def test_a_renewal_whose_answer_was_lost_is_its_own(make_host: MakeHost) -> None:
    host = make_host("h1")
    before = host.start_and_wait()
    host.stop(signal.SIGKILL)
    left = lease_file.read_lease(host.paths)  # It may have been killed in a renewal.
    assert left is not None
    lease_file.write_lease(host.paths, replace(left, tokens=(uuid4(), *left.tokens)))
    assert host.start_and_wait().incarnation == before.incarnation


def test_another_clone_with_the_name_of_a_host_is_refused(make_host: MakeHost) -> None:
    host, other = make_host("h1"), make_host("h1")
    host.start_and_wait()
    assert other.start().wait(30) == 1
    message = other.log.read_text()
    assert f":{host.paths.root} since " in message
    assert "the host name h1 is used by" in message
    assert "Traceback" not in message
    assert host.process is not None
    assert host.process.poll() is None


def test_a_host_goes_on_and_its_copy_is_refused(make_host: MakeHost) -> None:
    host, copy = make_host("h1"), make_host("h1")
    before = host.start_and_wait()
    host.stop(signal.SIGKILL)
    shutil.copy(host.paths.host_lease, copy.paths.host_lease)
    assert copy.start().wait(30) == 1
    assert f"the host name h1 is used by {host_name()}:{host.paths.root}" in copy.log.read_text()
    assert host.start_and_wait().incarnation == before.incarnation


def test_a_host_process_runs_once_in_a_clone(make_host: MakeHost) -> None:
    host = make_host("h1")
    host.start_and_wait()
    first, host.process = host.process, None
    assert host.start().wait(30) == 1
    assert "runs already" in host.log.read_text()
    host.process = first


def test_a_change_of_the_board_rings_on_each_host(make_host: MakeHost) -> None:
    host, other = make_host("h1"), make_host("h2")
    for each in (host, other):
        each.look_seconds = 600
        each.start_and_wait()
        until(lambda each=each: file_growth.last_wake(each.paths, file_growth.BOARD), "the first look")
    marks = [file_growth.last_wake(each.paths, file_growth.BOARD) for each in (host, other)]
    connection = connect(host.address)
    connection.execute("UPDATE crew SET change = change + 1")
    connection.notify(channel("shop"))
    connection.close()
    for each, mark in zip((host, other), marks, strict=True):
        until(lambda each=each, mark=mark: file_growth.last_wake(each.paths, file_growth.BOARD) != mark, "the bell")


def test_a_host_finds_postgresql_again(make_host: MakeHost, postgresql: PostgreSQL) -> None:
    host = make_host("h1")
    before = host.start_and_wait()
    postgresql.kill()
    until(lambda: "is gone or does not answer" in host.log.read_text(), "the host sees that the server is gone")
    postgresql.start()
    until(lambda: "answers again" in host.log.read_text(), "the host is connected again")
    until(lambda: (host.lease() or before).sent_at > before.sent_at, "a renewal after the start")
    assert (host.lease() or before).incarnation == before.incarnation


def test_a_session_ends_if_its_host_renews_no_more(make_host: MakeHost) -> None:
    host = make_host("h1")
    host.start_and_wait()
    host.stop(signal.SIGKILL)  # and no supervisor is there, either
    host.start_session("coder-1.1")
    lease = host.lease()
    assert lease is not None
    began = boottime()
    lease_file.write_lease(host.paths, replace(lease, sent_at=began - 29.5))
    until(lambda: host.session_end("coder-1.1"), "the session ends")
    end = host.session_end("coder-1.1")
    assert end is not None
    assert end.fenced
    assert boottime() - began > 0.5


def test_a_late_host_begins_again_when_its_sessions_have_ended(make_host: MakeHost) -> None:
    host = make_host("h1")
    before = host.start_and_wait()
    host.start_session("coder-1.1")
    host.stop(signal.SIGKILL)
    connection = connect(host.address)
    connection.execute("DELETE FROM host")  # a person forgot it
    connection.close()
    host.start()
    until(lambda: (host.lease() or before).incarnation != before.incarnation, "a new incarnation")
    assert host.session_end("coder-1.1") is not None
    assert "ended the session of coder-1.1" in host.log.read_text()


def _find_living_run(board: PostgresBoard) -> str:
    """Return the run of coder-1 whose session may live, as a watcher that reads the board finds it."""
    board.read_text()
    return board.held_agents()["coder-1"].run


def test_a_second_supervisor_of_an_agent_learns_where_the_first_is(make_host: MakeHost) -> None:
    host, other = make_host("h1"), make_host("h2")
    acting: list[str] = []
    ties = [
        AgentTie(each.paths, each.address, "coder-1", lambda name, _incarnation: acting.append(name))
        for each in (host, other)
    ]
    for each in (host, other):
        each.start_and_wait()
    ties[0].hold()
    ties[0].hold()
    assert acting == ["h1"]
    with pytest.raises(SupervisedElsewhere, match="coder-1 has a supervisor already, on the host h1 since"):
        ties[1].hold()
    boards = [PostgresBoard(each.paths, SystemClock(), each.address) for each in (host, other)]
    assert [board.held_agents()["coder-1"].host for board in boards] == ["h1", "h1"]
    boards[0].acts_for("h1", boards[0].held_agents()["coder-1"].incarnation)
    boards[0].begin_session("coder-1.1")
    boards[0].begin_session("coder-1.2")
    boards[0].end_session("coder-1.1")
    assert PostgresBoard(other.paths, SystemClock(), other.address).held_agents()["coder-1"].run == "coder-1.2"
    boards[0].end_session("coder-1.2")
    assert _find_living_run(boards[1]) == ""
    for board in boards:
        board.close()
    ties[0].release()
    ties[1].hold()
    assert acting == ["h1", "h2"]


def test_a_host_lets_go_of_an_agent_whose_supervisor_was_killed(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_process, "LEFT_LIMIT", timedelta(0))
    host = make_host("h1")
    lease = host.start_and_wait()
    connection = connect(host.address)
    table, left = HostsTable(connection, "shop"), LeftAgents(host.paths)
    AgentTie(host.paths, host.address, "coder-1", lambda _name, _incarnation: None).hold()
    host.start_session("coder-1.1")
    table.begin_session("coder-1", "coder-1.1", "h1", lease.incarnation)
    supervisor = Lock(host.paths.supervisor_lock("coder-1"))
    supervisor.acquire(timeout=5)
    assert left.release(table, lease) == ()
    supervisor.release()
    assert left.release(table, lease) == (), "its session lives"
    session_process.stop(host.paths.run("coder-1.1"), "coder-1.1", host.paths.root, 0.1)
    before = read_marks(connection, "shop").change
    assert left.release(table, lease) == ("coder-1",)
    assert table.read().agents == ()
    assert read_marks(connection, "shop").change == before + 1
    connection.close()


def test_a_supervisor_that_starts_again_keeps_its_agent(make_host: MakeHost) -> None:
    host = make_host("h1")
    host.start_and_wait()
    connection = connect(host.address)
    table = HostsTable(connection, "shop")
    for _ in range(2):
        AgentTie(host.paths, host.address, "coder-1", lambda _name, _incarnation: None).hold()
        rows = table.read().agents
        table.release_left(replace(rows[0], since=rows[0].since - timedelta(seconds=1)))
        assert table.read().agents == rows
    connection.close()


def list_held(board: PostgresBoard) -> list[tuple[str, str]]:
    """Return the agents that their hosts have still, with these hosts."""
    hosts = board.hosts()
    return [(row.agent, row.host) for row in hosts.agents if hosts.is_held(row)]


def test_a_board_lists_where_agents_and_duties_are(make_host: MakeHost) -> None:
    hosts = (make_host("h1"), make_host("h2"))
    boards = [PostgresBoard(host.paths, SystemClock(), host.address) for host in hosts]
    for host, board in zip(hosts, boards, strict=True):
        lease = host.start_and_wait()
        board.acts_for(lease.host, lease.incarnation)
    AgentTie(hosts[0].paths, hosts[0].address, "coder-1", boards[0].acts_for).hold()
    assert list_held(boards[1]) == [("coder-1", "h1")]
    assert [board.take_duty("merger") for board in boards] == [1, None]
    hosts[0].stop()
    assert list_held(boards[1]) == []
    assert boards[1].take_duty("merger") == 2


def test_a_host_process_of_up_ends_also_while_postgresql_is_gone(
    make_host: MakeHost, postgresql: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_process, "IDLE_SECONDS", 0.5)
    host = make_host("h1")
    said: list[str] = []
    postgresql.stop()
    try:
        HostProcess(host.paths, host.address, said.append, until_idle=True).run()
    finally:
        postgresql.start()
    assert len(said) == 1


def test_runs_of_a_host_that_is_gone_are_lost(make_host: MakeHost) -> None:
    host, other = make_host("h1"), make_host("h2")
    host.start_and_wait()
    other.start_and_wait()
    board, watcher = (PostgresBoard(each.paths, SystemClock(), each.address) for each in (host, other))
    AgentTie(host.paths, host.address, "coder-1", board.acts_for).hold()
    board.begin_session("coder-1.1")
    assert "coder-1.1" not in watcher.lost_runs()
    mark = file_growth.last_wake(other.paths, file_growth.BOARD)
    host.stop(signal.SIGKILL)
    connection = connect(host.address)
    connection.execute("DELETE FROM host WHERE name = 'h1'")  # a person forgot it
    connection.close()
    until(lambda: "coder-1.1" in watcher.lost_runs(), "the run is lost")
    for each in (board, watcher):
        each.close()
    until(lambda: file_growth.last_wake(other.paths, file_growth.BOARD) != mark, "supervisors look at the board")


def test_a_host_process_ends_when_its_clone_is_deleted(make_host: MakeHost) -> None:
    host = make_host("h1")
    host.start_and_wait()
    host.paths.liza.rename(host.paths.root / "gone")
    assert host.process is not None
    assert host.process.wait(timeout=30) == 0
    assert host.table().hosts == ()


def test_a_clone_deleted_during_a_renewal_leaves_the_crew(make_host: MakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    host = make_host("h1")

    def write_into_a_deleted_clone(paths: Paths, _lease: HostLease) -> None:
        paths.liza.rename(paths.root / "gone")
        raise WriteFailed("No such file or directory")

    monkeypatch.setattr(lease_file, "write_lease", write_into_a_deleted_clone)
    HostProcess(host.paths, host.address, lambda _line: None).run()
    assert host.table().hosts == ()
