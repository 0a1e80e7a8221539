"""Leases of hosts in a real PostgreSQL: who may renew, and who may take over."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from liza.board.postgresql.connection import ServerConnection, connect
from liza.board.postgresql.hosts_table import ACTS, HostsTable
from liza.board.rules.host_leases import HostCondition, judge_host
from tests.postgresql import PostgreSQL

STARTED = """
CREATE OR REPLACE FUNCTION liza.pg_postmaster_start_time() RETURNS timestamptz LANGUAGE sql
AS $$ SELECT clock_timestamp() - interval '{ago}' $$
"""


class Crew:
    """A crew, and what time does to its hosts."""

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection
        self.table = HostsTable(connection, "shop")

    def begin(self, name: str) -> tuple[UUID, UUID]:
        """Let a host begin; return its incarnation and token."""
        incarnation, token = uuid4(), uuid4()
        self.table.begin(name, incarnation, token, "boot", f"{name}:/srv/shop")
        return incarnation, token

    def age(self, name: str, seconds: float) -> None:
        """As if the last renewal was so long ago."""
        self.connection.execute(
            "UPDATE host SET seen = seen - %s, expires = expires - %s WHERE name = %s",
            *(timedelta(seconds=seconds),) * 2,
            name,
        )

    def acts(self, name: str, incarnation: UUID) -> bool:
        """Whether a transaction may act for the host."""
        return self.connection.fetch_one(ACTS, "shop", name, incarnation) is not None


@pytest.fixture
def crew(postgresql: PostgreSQL, database: str) -> Iterator[Crew]:
    """An empty crew, on a server that seems to run for a day."""
    postgresql.run_sql(
        STARTED.format(ago="1 day"),
        database=database,
    )
    connection = connect(postgresql.address(database))
    connection.execute("SET search_path = liza, pg_catalog")
    yield Crew(connection)
    connection.close()


def test_a_host_renews_until_its_lease_is_over(crew: Crew) -> None:
    incarnation, token = crew.begin("h1")
    following = uuid4()
    assert crew.table.renew("h1", incarnation, (token,), following, 7)
    assert not crew.table.renew("h1", incarnation, (token,), uuid4(), 7)  # a copy of the disk
    crew.age("h1", 44)
    assert crew.acts("h1", incarnation)
    assert crew.table.renew("h1", incarnation, (token, following), following, 7)
    crew.age("h1", 46)
    assert not crew.acts("h1", incarnation)
    assert not crew.table.renew("h1", incarnation, (following,), uuid4(), 7)


def test_another_host_takes_an_agent_after_a_minute(crew: Crew) -> None:
    first, second = crew.begin("h1")[0], crew.begin("h2")[0]
    assert crew.table.take_agent("coder-1", "h1", first)
    assert crew.table.take_agent("coder-1", "h1", first)
    assert not crew.table.take_agent("coder-1", "h2", second)
    crew.age("h1", 59)
    assert not crew.table.take_agent("coder-1", "h2", second)
    crew.age("h1", 2)
    assert crew.table.take_agent("coder-1", "h2", second)
    assert not crew.table.take_agent("coder-1", "h1", first)
    assert [(row.agent, row.host) for row in crew.table.read().agents] == [("coder-1", "h2")]


def test_what_a_host_held_is_free_when_it_begins_again(crew: Crew) -> None:
    first, second = crew.begin("h1")[0], crew.begin("h2")[0]
    assert crew.table.take_agent("coder-1", "h1", first)
    assert crew.table.take_duty("merger", "h1", first) == 1
    again = crew.begin("h1")[0]
    assert not crew.table.take_agent("coder-2", "h1", first)
    assert crew.table.take_agent("coder-1", "h2", second)
    assert crew.table.take_duty("merger", "h1", again) == 2


def test_sessions_of_a_lost_host_are_over(crew: Crew) -> None:
    first, second = crew.begin("h1")[0], crew.begin("h2")[0]
    assert crew.table.take_agent("coder-1", "h1", first)
    crew.table.begin_session("coder-1", "coder-1.7", "h1", first)
    assert crew.table.take_agent("coder-1", "h1", first)  # another supervisor adopts the session
    assert [row.run for row in crew.table.read().agents] == ["coder-1.7"]
    crew.age("h1", 61)
    assert crew.table.take_agent("coder-1", "h2", second)
    assert [row.run for row in crew.table.read().agents] == [""]


def test_a_duty_has_one_holder_and_a_growing_term(crew: Crew) -> None:
    first, second = crew.begin("h1")[0], crew.begin("h2")[0]
    assert crew.table.take_duty("merger", "h1", first) == 1
    assert crew.table.take_duty("merger", "h1", first) == 1
    assert crew.table.take_duty("merger", "h2", second) is None
    assert crew.table.take_duty("merger", "h2", second, above=5) is None
    assert crew.table.take_duty("exporter", "h2", second) == 1
    crew.age("h1", 61)
    assert crew.table.take_duty("merger", "h2", second) == 2
    crew.table.leave("h2", second)
    third = crew.begin("h3")[0]
    assert crew.table.take_duty("merger", "h3", third) == 3
    assert [(row.name, row.host, row.term) for row in crew.table.read().duties] == [
        ("exporter", "h2", 1),
        ("merger", "h3", 3),
    ]
    assert [crew.table.take_duty("merger", "h3", third, above=number) for number in (6, 0)] == [7, 7]


def test_a_host_that_left_holds_nothing(crew: Crew) -> None:
    first, second = crew.begin("h1")[0], crew.begin("h2")[0]
    assert crew.table.take_agent("coder-1", "h1", first)
    table = crew.table.read()
    assert table.is_held(table.agents[0])
    crew.table.leave("h1", first)
    table = crew.table.read()
    assert not table.is_held(table.agents[0])
    assert crew.table.take_agent("coder-1", "h2", second)
    crew.table.release_agent("coder-1", "h2", second)
    assert crew.table.read().agents == ()


def test_no_lease_ends_soon_after_a_start_of_postgresql(crew: Crew) -> None:
    incarnation, token = crew.begin("h1")
    second = crew.begin("h2")[0]
    crew.connection.execute(STARTED.format(ago="30 seconds"))
    crew.age("h1", 300)
    table = crew.table.read()
    assert judge_host(table.hosts[0], table.now, table.started) is HostCondition.SILENT
    assert crew.table.take_agent("coder-1", "h1", incarnation)
    assert not crew.table.take_agent("coder-1", "h2", second)
    assert crew.table.renew("h1", incarnation, (token,), uuid4(), 0)
