"""Hosts of one crew, on a database of the test."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from liza.programs.session import session_process
from tests.edges.hosts_rig import HostRig
from tests.postgresql import PostgreSQL

MakeHost = Callable[[str], HostRig]


@pytest.fixture
def make_host(postgresql: PostgreSQL, database: str, tmp_path: Path) -> Iterator[MakeHost]:
    """Makes hosts by name, each in a directory of its own; their processes end with the test."""
    hosts: list[HostRig] = []
    postgresql.run_sql("INSERT INTO liza.crew (id) VALUES ('shop')", database=database)

    def make(name: str) -> HostRig:
        hosts.append(HostRig(tmp_path / f"{name}-{len(hosts)}", postgresql.url(database), name))
        return hosts[-1]

    yield make
    for host in hosts:
        host.stop(signal.SIGKILL)
        for run in ("coder-1.1",):
            session_process.stop(host.paths.run(run), run, host.paths.root, 0.1)
