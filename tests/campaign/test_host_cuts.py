"""A host that is not heard: by one clock, its sessions have ended before another host takes over. Takes 100 s."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from liza.board.address import write_address
from liza.board.postgresql.connection import connect
from liza.board.postgresql.hosts_table import HostsTable
from liza.programs.session import session_process
from tests.conftest import until
from tests.edges.hosts_rig import HostRig
from tests.postgresql import PostgreSQL

pytestmark = pytest.mark.campaign
CUTS = ("stopped", "killed", "unreachable")
LIMIT = 200.0


class Cut(HostRig):
    """A host with one session, that is cut off in one of the ways. Its link to PostgreSQL is a process of its own."""

    def __init__(self, directory: Path, server: PostgreSQL, database: str, way: str) -> None:
        sockets = directory / "pg"
        sockets.mkdir(parents=True)
        url = f"postgresql://postgres@/{database}?host={sockets}&crew=shop"
        super().__init__(directory / "shop", url, f"{way}-host")
        self.way, self.agent = way, f"coder-{CUTS.index(way) + 1}"
        self.run = f"{self.agent}.1"
        link = f"unix:{sockets}/.s.PGSQL.5432=unix:{server.sockets}/.s.PGSQL.5432"
        self.relay = subprocess.Popen(
            [sys.executable, "-m", "tests.relay", link], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.relay.stdout is not None
        assert self.relay.stdout.readline() == b"ready\n"

    def cut(self) -> None:
        """Cut it off."""
        assert self.process is not None
        match self.way:
            case "stopped":
                self.process.send_signal(signal.SIGSTOP)
            case "killed":
                self.stop(signal.SIGKILL)
            case _:
                self.relay.send_signal(signal.SIGSTOP)

    def heal(self) -> None:
        """End the cut."""
        self.relay.send_signal(signal.SIGCONT)
        if self.process is None:
            self.start()
        else:
            self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End everything."""
        self.relay.send_signal(signal.SIGCONT)
        self.stop(signal.SIGKILL)
        session_process.stop(self.paths.run(self.run), self.run, self.paths.root, 0.1)
        self.relay.kill()
        self.relay.wait()


@pytest.fixture
def hosts(postgresql: PostgreSQL, database: str, tmp_path: Path) -> Iterator[list[Cut]]:
    """One host for each way of a cut."""
    postgresql.run_sql("INSERT INTO liza.crew (id) VALUES ('shop')", database=database)
    hosts = [Cut(tmp_path / way, postgresql, database, way) for way in CUTS]
    yield hosts
    for host in hosts:
        host.close()


def test_sessions_end_before_another_host_takes_over(
    hosts: list[Cut], postgresql: PostgreSQL, database: str, tmp_path: Path
) -> None:
    other = HostRig(tmp_path / "other", postgresql.url(database), "other")
    write_address(other.paths.board_address, other.address)
    with closing(connect(postgresql.address(database))) as connection:
        table = HostsTable(connection, "shop")
        try:
            incarnation = other.start_and_wait().incarnation
            before = {}
            for host in hosts:
                lease = before[host.agent] = host.start_and_wait()
                assert table.take_agent(host.agent, host.name, lease.incarnation)
                host.start_session(host.run)
            cut_at = time.monotonic()
            for host in hosts:
                host.cut()
            ended, taken = _follow(hosts, table, incarnation)
            for host in hosts:
                assert ended[host.agent] < taken[host.agent]
                assert ended[host.agent] - cut_at < 40
                assert taken[host.agent] - cut_at > 45
                host.heal()
                until(
                    lambda host=host: (
                        (host.lease() or before[host.agent]).incarnation != before[host.agent].incarnation
                    ),
                    "a new incarnation",
                )
                lease = host.lease()
                assert lease is not None
                assert not table.take_agent(host.agent, host.name, lease.incarnation)
        finally:
            other.stop()


def _follow(hosts: list[Cut], table: HostsTable, incarnation: object) -> tuple[dict[str, float], dict[str, float]]:
    """When the session of each agent ended, and when another host got the agent, by one clock."""
    ended: dict[str, float] = {}
    taken: dict[str, float] = {}
    limit = time.monotonic() + LIMIT
    while len(taken) < len(hosts):
        assert time.monotonic() < limit, (ended, taken)
        for host in hosts:
            if host.agent not in ended and host.session_end(host.run) is not None:
                ended[host.agent] = time.monotonic()
            if host.agent not in taken and table.take_agent(host.agent, "other", incarnation):
                taken[host.agent] = time.monotonic()
        time.sleep(0.05)
    return ended, taken
