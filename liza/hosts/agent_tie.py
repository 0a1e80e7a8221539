"""The tie of a supervisor to its host: which incarnation it acts for, and that it has its agent for itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from liza.board.address import BoardAddress
from liza.board.postgresql.connection import connect
from liza.board.postgresql.hosts_table import HostsTable
from liza.board.rules.host_leases import HostLease
from liza.hosts import host_start, lease_file
from liza.model.errors import HostFenced, Refused
from liza.model.paths import Paths
from liza.text.formats import format_time


class SupervisedElsewhere(Refused):
    """The supervisor of this agent is on another host. Exit code 1."""


class AgentTie:
    """The agent of one supervisor, held for the host of this clone."""

    def __init__(self, paths: Paths, address: BoardAddress, agent: str) -> None:
        self._paths, self._address, self._agent = paths, address, agent
        self._incarnation: UUID | None = None

    def hold(self) -> str | None:
        """Check the lease, and hold the agent; return the incarnation if it is another one than at the last call.

        Raises HostFenced while this host has no lease, SupervisedElsewhere if another host has the agent.
        """
        if self._incarnation is None:
            return self._take(host_start.require_host(self._paths))
        host_start.start_if_absent(self._paths)
        lease = lease_file.require_lease(self._paths)
        return None if lease.incarnation == self._incarnation else self._take(lease)

    def _take(self, lease: HostLease) -> str:
        with open_table(self._address) as table:
            if not table.take_agent(self._agent, lease.host, lease.incarnation):
                holders = [row for row in table.read().agents if row.agent == self._agent and row.host != lease.host]
                if not holders:
                    raise HostFenced(f"the host {lease.host} has no lease now", lease_file.START_COMMAND)
                raise SupervisedElsewhere(
                    f"{self._agent} has a supervisor already, on the host {holders[0].host} since "
                    f"{format_time(holders[0].since)}",
                    "liza host list",
                )
        self._incarnation = lease.incarnation
        return str(lease.incarnation)

    def release(self) -> None:
        """Let other hosts have the agent. Raises LizaError: then they have it when this host takes it again or ends."""
        incarnation, self._incarnation = self._incarnation, None
        if incarnation is not None:
            with open_table(self._address) as table:
                table.release_agent(self._agent, self._address.host, incarnation)


@contextmanager
def open_table(address: BoardAddress) -> Iterator[HostsTable]:
    """Yield the hosts of a crew, over a connection of its own."""
    connection = connect(address)
    try:
        yield HostsTable(connection, address.crew)
    finally:
        connection.close()
