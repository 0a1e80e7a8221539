"""Agents of this host whose supervisor was killed and not started again: other hosts may have them."""

from __future__ import annotations

from liza.board.postgresql.hosts_table import HostsTable
from liza.board.rules.host_leases import LEFT_LIMIT, HostLease
from liza.hosts import local_sessions
from liza.model.paths import Paths
from liza.programs import liveness
from liza.programs.session.run_directory import RunDir
from liza.system.clock import boottime


class LeftAgents:
    """Releases what killed supervisors held. It remembers since when an agent has no supervisor."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._left: dict[str, float] = {}

    def release(self, table: HostsTable, lease: HostLease) -> tuple[str, ...]:
        """Release each agent that has had no supervisor for LEFT_LIMIT and no session; return them."""
        # In this order: a supervisor has its lock before it takes its agent, and that gives a new ``since``.
        held = [row for row in table.read().agents if (row.host, row.incarnation) == (lease.host, lease.incarnation)]
        supervised, now = local_sessions.list_supervised(self._paths), boottime()
        gone = [row for row in held if row.agent not in supervised]
        self._left = {row.agent: self._left.get(row.agent, now) for row in gone}
        due = [
            row
            for row in gone
            if now - self._left[row.agent] >= LEFT_LIMIT.total_seconds()
            and (not row.run or liveness.is_proved_over(RunDir(self._paths, row.run)))
        ]
        for row in due:
            table.release_left(row)
        return tuple(row.agent for row in due)
