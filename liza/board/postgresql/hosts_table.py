"""The tables of hosts, their agents and their duties: one statement each, by the clock of the server.

A host renews one row. Agents and duties name the incarnation of their host: they are held as long as the host has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final
from uuid import UUID

from liza.board.postgresql.connection import ServerConnection
from liza.board.rules.host_leases import GRACE, LEASE, START_GRACE, AgentPlacement, DutyRow, HostRow, HostTable

_STARTED: Final = "pg_postmaster_start_time()"
_VALID: Final = f"greatest(expires, {_STARTED} + interval '{START_GRACE}') > clock_timestamp()"
ACTS: Final = f"SELECT 1 FROM host WHERE crew = %s AND name = %s AND incarnation = %s AND {_VALID}"
"""Query of a transaction that acts for a host: no row if the host may change nothing more."""
_LOST: Final = (
    f"greatest(expires + interval '{GRACE}', {_STARTED} + interval '{START_GRACE + GRACE}') < clock_timestamp()"
)
COUNT_HOSTS: Final = f"(SELECT count(*) FROM host WHERE host.crew = crew.id AND NOT {_LOST})"
"""Part of a query of crews: the number of hosts that are not lost. Time alone changes it."""
_RENEW: Final = f"""
UPDATE host SET seen = clock_timestamp(), expires = clock_timestamp() + interval '{LEASE}', token = %s, seen_change = %s
WHERE crew = %s AND name = %s AND incarnation = %s AND token = ANY(%s) AND {_VALID}
"""
_BEGIN: Final = f"""
INSERT INTO host (crew, name, incarnation, token, boot, address, since, seen, expires)
VALUES (%s, %s, %s, %s, %s, %s, clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '{LEASE}')
ON CONFLICT (crew, name) DO UPDATE SET incarnation = excluded.incarnation, token = excluded.token, boot = excluded.boot,
  address = excluded.address, since = excluded.since, seen = excluded.seen, expires = excluded.expires
"""
_HELD: Final = """
EXISTS (SELECT 1 FROM host WHERE host.crew = {table}.crew AND host.name = {table}.host
        AND host.incarnation = {table}.incarnation AND NOT {lost})
"""
_ACTING: Final = f"FROM host WHERE crew = %(crew)s AND name = %(host)s AND incarnation = %(incarnation)s AND {_VALID}"
_TAKE_AGENT: Final = f"""
INSERT INTO lease (crew, agent, host, incarnation, since)
SELECT crew, %(name)s, name, incarnation, clock_timestamp() {_ACTING}
ON CONFLICT (crew, agent) DO UPDATE SET host = excluded.host, incarnation = excluded.incarnation,
  since = excluded.since,
  run = CASE WHEN (lease.host, lease.incarnation) = (excluded.host, excluded.incarnation) THEN lease.run ELSE '' END
WHERE lease.host = excluded.host OR NOT {_HELD.format(table="lease", lost=_LOST)}
"""
_OWN_AGENT: Final = "crew = %(crew)s AND agent = %(name)s AND host = %(host)s AND incarnation = %(incarnation)s"
_BEGIN_SESSION: Final = f"UPDATE lease SET run = %(run)s WHERE {_OWN_AGENT}"
_END_SESSION: Final = f"""
WITH ended AS (UPDATE lease SET run = '' WHERE {_OWN_AGENT} AND run = %(run)s RETURNING agent)
UPDATE crew SET change = change + 1 WHERE id = %(crew)s AND EXISTS (SELECT FROM ended)
"""
_RELEASE_LEFT: Final = """
WITH released AS (DELETE FROM lease WHERE crew = %(crew)s AND agent = %(agent)s AND incarnation = %(incarnation)s
                  AND since = %(since)s AND run = %(run)s RETURNING agent)
UPDATE crew SET change = change + 1 WHERE id = %(crew)s AND EXISTS (SELECT FROM released)
"""
_TAKE_DUTY: Final = f"""
INSERT INTO duty (crew, name, host, incarnation, term, since)
SELECT crew, %(name)s, name, incarnation, %(above)s + 1, clock_timestamp() {_ACTING}
ON CONFLICT (crew, name) DO UPDATE SET host = excluded.host, incarnation = excluded.incarnation,
  term = greatest(duty.term + ((duty.host, duty.incarnation) <> (excluded.host, excluded.incarnation))::int,
                  excluded.term),
  since = CASE WHEN (duty.host, duty.incarnation) = (excluded.host, excluded.incarnation)
               THEN duty.since ELSE excluded.since END
WHERE duty.host = excluded.host OR NOT {_HELD.format(table="duty", lost=_LOST)}
RETURNING term
"""
_COLUMNS: Final = "name, incarnation, token, boot, address, since, seen, expires"


class HostsTable:
    """The hosts of one crew, over one connection."""

    def __init__(self, connection: ServerConnection, crew: str) -> None:
        self._connection, self._crew = connection, crew

    @contextmanager
    def lock_host(self, name: str) -> Iterator[tuple[HostRow | None, datetime, datetime]]:
        """Lock the name of a host; yield its row, the time, and the start of PostgreSQL."""
        connection = self._connection
        connection.execute("BEGIN")
        try:
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", f"{self._crew} {name}")
            row = connection.fetch_one(
                f"SELECT {_COLUMNS} FROM host WHERE crew = %s AND name = %s FOR UPDATE", self._crew, name
            )
            now, started = connection.fetch_one(f"SELECT clock_timestamp(), {_STARTED}") or (None, None)
            assert isinstance(now, datetime)
            assert isinstance(started, datetime)
            yield None if row is None else HostRow(*row), now, started
            connection.execute("COMMIT")
        except BaseException:
            connection.roll_back()
            raise

    def begin(self, name: str, incarnation: UUID, token: UUID, boot: str, address: str) -> None:
        """Give a host its first lease in a new incarnation. What the last one held is free."""
        self._connection.execute(_BEGIN, self._crew, name, incarnation, token, boot, address)

    def renew(self, name: str, incarnation: UUID, tokens: tuple[UUID, ...], token: UUID, change: int) -> bool:
        """Renew the lease of a host, and with it all that it holds; False if that is too late, or not its own.

        The last renewal has one of ``tokens``. ``token``: that of this renewal. ``change``: the number of
        the newest change that the host has seen.
        """
        row = (token, change, self._crew, name, incarnation, list(tokens))
        return self._connection.execute(_RENEW, *row) == 1

    def leave(self, name: str, incarnation: UUID) -> None:
        """Remove a host in this incarnation: what it held is free at once."""
        self._connection.execute(
            "DELETE FROM host WHERE crew = %s AND name = %s AND incarnation = %s", self._crew, name, incarnation
        )

    def read(self) -> HostTable:
        """Return all hosts, agents and duties."""
        hosts, agents, duties, times = self._connection.run_together([
            (f"SELECT {_COLUMNS} FROM host WHERE crew = %(crew)s ORDER BY name", {"crew": self._crew}),
            ("SELECT agent, host, incarnation, since, run FROM lease WHERE crew = %(crew)s ORDER BY agent",
             {"crew": self._crew}),
            ("SELECT name, host, incarnation, term, since FROM duty WHERE crew = %(crew)s ORDER BY name",
             {"crew": self._crew}),
            (f"SELECT clock_timestamp(), {_STARTED}", {}),
        ])  # fmt: skip
        return HostTable(
            tuple(HostRow(*row) for row in hosts),
            tuple(AgentPlacement(*row) for row in agents),
            tuple(DutyRow(*row) for row in duties),
            *times[0],
        )

    def take_agent(self, agent: str, host: str, incarnation: UUID) -> bool:
        """Record that the supervisor of an agent is on this host; False if it is on another one, or this one is
        fenced."""
        return self._connection.execute_named(_TAKE_AGENT, **self._names(agent, host, incarnation)) == 1

    def release_agent(self, agent: str, host: str, incarnation: UUID) -> None:
        """Record that the supervisor of an agent has ended."""
        sql = "DELETE FROM lease WHERE crew = %s AND agent = %s AND host = %s AND incarnation = %s"
        self._connection.execute(sql, self._crew, agent, host, incarnation)

    def release_left(self, row: AgentPlacement) -> None:
        """Let other hosts have an agent, unless a supervisor has taken it since ``row`` was read. As ``end_session``,
        this is a change of the crew."""
        names = {"agent": row.agent, "incarnation": row.incarnation, "since": row.since, "run": row.run}
        self._connection.execute_named(_RELEASE_LEFT, crew=self._crew, **names)

    def begin_session(self, agent: str, run: str, host: str, incarnation: UUID) -> None:
        """Record that the session of a run may live from now on."""
        self._connection.execute_named(_BEGIN_SESSION, **self._names(agent, host, incarnation), run=run)

    def end_session(self, agent: str, run: str, host: str, incarnation: UUID) -> None:
        """Record that the session of a run is over. This is a change of the crew: others wait for it."""
        self._connection.execute_named(_END_SESSION, **self._names(agent, host, incarnation), run=run)

    def take_duty(self, name: str, host: str, incarnation: UUID, above: int = 0) -> int | None:
        """Return the term, above ``above``, in which this host has a duty; None if another host has it, or this one is
        fenced."""
        rows = self._connection.fetch_named(_TAKE_DUTY, **self._names(name, host, incarnation), above=above)
        return int(rows[0][0]) if rows else None

    def _names(self, name: str, host: str, incarnation: UUID) -> dict[str, object]:
        return {"crew": self._crew, "name": name, "host": host, "incarnation": incarnation}
