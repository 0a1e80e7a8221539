"""A host that is not heard: the alarm about it, the list of hosts, and the word of a person that it is dead."""

from __future__ import annotations

import signal
from contextlib import closing
from datetime import timedelta

import pytest

from liza.alarms import current_alarms
from liza.board.postgresql.connection import connect
from liza.board.postgresql.hosts_table import HostsTable
from liza.board.postgresql.postgres_board import PostgresBoard
from liza.board.rules.host_leases import HostTable
from liza.commands.host import format_hosts
from liza.crew.crew import Crew
from liza.hosts import host_list
from liza.hosts.agent_tie import AgentTie
from liza.model.errors import Refused, UnknownId
from liza.model.model import State
from liza.model.value_classes import replace
from liza.system.clock import SystemClock
from tests.edges.hosts.conftest import MakeHost
from tests.edges.hosts_rig import HostRig
from tests.unit.boards import agents, board, claimed, task


@pytest.fixture(autouse=True)
def _started_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of tests has started just now; then nothing expires."""
    read = HostsTable.read

    def read_later(table: HostsTable) -> HostTable:
        rows = read(table)
        return replace(rows, started=rows.started - timedelta(hours=1))

    monkeypatch.setattr(HostsTable, "read", read_later)


@pytest.fixture
def hosts(make_host: MakeHost) -> tuple[HostRig, HostRig]:
    """Two hosts; coder-1 has its supervisor on h2."""
    hosts = make_host("h1"), make_host("h2")
    for host in hosts:
        host.start_and_wait()
    AgentTie(hosts[1].paths, hosts[1].address, "coder-1", lambda _host, _incarnation: None).hold()
    return hosts


def _crew_of(host: HostRig) -> Crew:
    crew = Crew(host.paths, SystemClock())
    vars(crew)["board"] = PostgresBoard(host.paths, SystemClock(), host.address)
    return crew


def _silence(host: HostRig, seconds: float) -> None:
    """Kill the process of a host, and let its last renewal be so long ago."""
    host.stop(signal.SIGKILL)
    past = timedelta(seconds=seconds)
    sql = "UPDATE host SET seen = clock_timestamp() - %s, expires = clock_timestamp() - %s WHERE name = %s"
    with closing(connect(host.address)) as connection:
        connection.execute(sql, past, past - timedelta(seconds=45), host.name)


def _find_alarms(crew: Crew, state: State) -> list[tuple[str, str]]:
    return [(alarm.message, alarm.next) for alarm in current_alarms._check_hosts(crew, state)]


def test_an_alarm_names_what_of_a_silent_host_waits(hosts: tuple[HostRig, HostRig]) -> None:
    crew = _crew_of(hosts[0])
    state, _run = claimed(board(task(), agents=agents("coder-1", "coder-2")))
    assert _find_alarms(crew, state) == []
    _silence(hosts[1], 25)
    ((message, step),) = _find_alarms(crew, state)
    assert message.startswith("the host h2 was last heard at ")
    assert "task-1 waits; other hosts may take over at " in message
    assert step == "liza host list"
    _silence(hosts[1], 31)
    assert _find_alarms(crew, state)[0][1] == "liza host forget h2"


def test_the_list_names_each_host_with_its_agents(hosts: tuple[HostRig, HostRig]) -> None:
    _silence(hosts[1], 40)
    first, second = host_list.list_hosts(_crew_of(hosts[0]))
    assert (first.name, first.condition, first.is_here, first.agents, first.next) == ("h1", "alive", True, (), "")
    assert (second.name, second.condition, second.agents) == ("h2", "silent", ("coder-1",))
    assert (second.silent, second.next) == (40, "liza host forget h2")
    lines = format_hosts((first, second)).splitlines()
    assert lines[0].split()[:3] == ["h1", "(here)", "alive"]
    assert "others may take over at" in lines[1]


def test_a_host_is_forgotten_only_after_its_sessions_have_ended(hosts: tuple[HostRig, HostRig]) -> None:
    crew = _crew_of(hosts[0])

    with pytest.raises(UnknownId, match="no host h3"):
        host_list.forget_host(crew, "h3")
    with pytest.raises(Refused, match="its sessions may go on until"):
        host_list.forget_host(crew, "h2")
    _silence(hosts[1], 31)
    result = host_list.forget_host(crew, "h2")
    assert result.message == "h2 is forgotten; coder-1 may start on other hosts"
    AgentTie(hosts[0].paths, hosts[0].address, "coder-1", lambda _host, _incarnation: None).hold()
