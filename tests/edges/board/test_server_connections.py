"""Connections to a real PostgreSQL, and the tables that migrations make."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from liza.board.address import parse_url
from liza.board.postgresql import connection as connections
from liza.board.postgresql import migrations
from liza.board.postgresql.connection import SCHEMA, RowConflict, connect, connect_with_facts
from liza.board.postgresql.migrations import migrate
from liza.model.errors import BoardServerRefused, BoardUnavailable, LockTimeout
from tests.postgresql import PostgreSQL


def test_a_migrated_database_has_the_tables_of_a_board(postgresql: PostgreSQL, database: str) -> None:
    connection, facts = connect_with_facts(postgresql.address(database))
    tables = {name for (name,) in connection.fetch_all("SELECT tablename FROM pg_tables WHERE schemaname = 'liza'")}
    assert {"crew", "entry", "archived", "journal", "signal", "host", "lease", "duty"} < tables
    assert facts.version >= 150000
    assert facts.warnings == ()
    assert connection.fetch_one("SELECT max(number) FROM liza_schema") == (SCHEMA,)
    connection.close()


def test_a_migration_is_applied_once(postgresql: PostgreSQL, database: str) -> None:
    assert migrate(postgresql.address(database)).applied == ()
    assert [migration.number for migration in migrations.read_migrations()] == list(range(1, SCHEMA + 1))


def test_two_tasks_cannot_have_one_owner(postgresql: PostgreSQL, database: str) -> None:
    connection = connect(postgresql.address(database))
    columns = "crew, section, name, kind, ord, body, value, change"
    insert = f"INSERT INTO entry ({columns}) VALUES ('shop', 'tasks', %s, 'entry', 0, '', %s, 1)"
    connection.execute(insert, "a", '{"status": "CLAIMED", "assigned_to": "coder-1"}')
    connection.execute(insert, "b", '{"status": "MERGED", "assigned_to": "coder-1"}')
    with pytest.raises(RowConflict) as caught:
        connection.execute(insert, "c", '{"status": "CLAIMED", "assigned_to": "coder-1"}')
    assert caught.value.constraint == "entry_owner"
    status = "CASE name WHEN 'a' THEN 'MERGED' ELSE 'CLAIMED' END"
    connection.execute(f"UPDATE entry SET value = value || jsonb_build_object('status', {status})")
    connection.close()


def test_a_locked_crew_ends_the_wait_of_another_client(postgresql: PostgreSQL, database: str) -> None:
    first, second = (connect(postgresql.address(database)) for _ in range(2))
    first.execute("INSERT INTO crew (id) VALUES ('shop')")
    first.execute("BEGIN")
    first.execute("SELECT 1 FROM crew FOR NO KEY UPDATE")
    second.execute("SET lock_timeout = '50ms'")
    with pytest.raises(LockTimeout, match="shop"):
        second.execute("UPDATE crew SET change = 1")
    assert not second.is_closed
    for connection in (first, second):
        connection.close()


def test_a_server_that_does_not_answer_is_given_up(postgresql: PostgreSQL, database: str) -> None:
    connection = connect(postgresql.address(database), answer_limit=0.3)
    with pytest.raises(BoardUnavailable, match="no answer within"):
        connection.execute("SELECT pg_sleep(5)")
    assert connection.is_closed


def test_a_look_gives_a_silent_server_up_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_CONNECT_LIMIT", 3600)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / ".s.PGSQL.5432"))
        silent.listen()
        with pytest.raises(BoardUnavailable, match="does not answer"):
            connect_with_facts(parse_url(f"postgresql:///liza?host={tmp_path}&crew=shop"), is_look=True)


def test_a_look_gives_a_slow_resolver_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: end.wait())
    try:
        with pytest.raises(BoardUnavailable, match=r"the host db\.example of the board is not known"):
            connect_with_facts(parse_url("postgresql://db.example/liza?crew=shop"), is_look=True)
    finally:
        end.set()


def test_a_database_without_tables_names_the_command(postgresql: PostgreSQL) -> None:
    with pytest.raises(BoardServerRefused, match="has not the tables"):
        connect(postgresql.address())


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        (f"UPDATE liza_schema SET oldest_client = {SCHEMA + 1}", f"and {SCHEMA + 1} is needed"),
        ("DELETE FROM liza_schema", "its tables are of schema 0"),
    ],
)
def test_a_database_of_another_schema_is_refused(
    postgresql: PostgreSQL, database: str, statement: str, reason: str
) -> None:
    postgresql.run_sql(statement, database=database)
    with pytest.raises(BoardServerRefused, match=reason):
        connect(postgresql.address(database))


def test_a_notification_reaches_another_connection(postgresql: PostgreSQL, database: str) -> None:
    listener, sender = (connect(postgresql.address(database)) for _ in range(2))
    listener.listen('liza "shop"')
    sender.notify('liza "shop"')
    assert listener.take_notifications(timeout=10) == 1
    assert listener.take_notifications() == 0
    for connection in (listener, sender):
        connection.close()


def test_a_missing_psycopg_is_one_sentence_and_a_command() -> None:
    script = "import sys; sys.modules['psycopg'] = None; import liza.board.postgresql.connection"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.splitlines()[-1] == "liza.model.errors.Missing: a board in PostgreSQL needs the package psycopg"
    caught = "\ntry: exec(code)\nexcept LizaError as error: print(error.exit_code, error.hint)"
    program = f"from liza.model.errors import LizaError\ncode = {script!r}{caught}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("5 ")
    assert "psycopg[binary]" in done.stdout
