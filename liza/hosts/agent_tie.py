"""The tie of a supervisor to its host: which incarnation it acts for, and that it has its agent for itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

from liza.board.address import BoardAddress
from liza.board.postgresql.connection import connect
from liza.board.postgresql.hosts_table import HostsTable
from liza.board.rules.host_leases import HostLease
from liza.crew.crew import Crew
from liza.hosts import host_start, lease_file
from liza.hosts.host_start import require_host_address
from liza.model.errors import HostFenced, SupervisedElsewhere
from liza.model.paths import Paths
from liza.text.formats import format_time


class AgentTie:
    """The agent of one supervisor, held for the host of this clone."""

    def __init__(self, paths: Paths, address: BoardAddress, agent: str, act: Callable[[str, UUID], None]) -> None:
        """``act`` gets the host and its incarnation, for which later changes of the board are made."""
        self._paths, self._address, self._agent, self._act = paths, address, agent, act
        self._incarnation: UUID | None = None

    def hold(self) -> None:
        """Check the lease of this host, and hold the agent for it; after a new beginning of the host hold it again.

        Raises HostFenced while this host has no lease, SupervisedElsewhere if another host has the agent.
        """
        if self._incarnation is None:
            self._take(host_start.require_host(self._paths))
            return
        host_start.start_if_absent(self._paths)
        lease = lease_file.require_lease(self._paths)
        if lease.incarnation != self._incarnation:
            self._take(lease)

    def _take(self, lease: HostLease) -> None:
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
        self._act(lease.host, lease.incarnation)

    def release(self) -> None:
        """Let other hosts have the agent. Raises LizaError: then they have it when this host takes it again or ends."""
        incarnation, self._incarnation = self._incarnation, None
        if incarnation is not None:
            with open_table(self._address) as table:
                table.release_agent(self._agent, self._address.host, incarnation)


def tie_agent(crew: Crew, agent: str) -> AgentTie:
    """Return the tie of a supervisor of a crew whose board is in PostgreSQL. Raises UsageError."""
    return AgentTie(crew.paths, require_host_address(crew.paths), agent, crew.board.acts_for)


@contextmanager
def open_table(address: BoardAddress) -> Iterator[HostsTable]:
    """Yield the hosts of a crew, over a connection of its own."""
    connection = connect(address)
    try:
        yield HostsTable(connection, address.crew)
    finally:
        connection.close()
