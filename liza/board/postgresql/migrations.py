"""The numbered migrations of the database: SQL files, applied by its owner, each once.

The first line of a file names the oldest client that may go on: the newest migration that a Liza must know.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from liza.board.address import BoardAddress
from liza.board.postgresql.connection import (
    SCHEMA,
    RowConflict,
    ServerConnection,
    StatementFailed,
    connect_to_migrate,
    refuse_unreachable,
)
from liza.model.errors import BoardServerRefused
from liza.model.value_classes import Value

HOSTS_ROLE: Final = "liza_hosts"
"""The role without login that may read and write the tables; the roles of hosts are members of it."""
_DIRECTORY: Final = Path(__file__).with_name("migrations")
_LOCK: Final = 0x6C697A61  # any number: that of the advisory lock
_HEAD: Final = re.compile(r"-- oldest client: (\d+)\n")
_PREPARE: Final = """
CREATE SCHEMA IF NOT EXISTS liza;
CREATE TABLE IF NOT EXISTS liza.liza_schema (
  number int PRIMARY KEY, name text NOT NULL, oldest_client int NOT NULL,
  applied timestamptz NOT NULL DEFAULT clock_timestamp());
"""
_GRANT: Final = f"""
GRANT USAGE ON SCHEMA liza TO {HOSTS_ROLE};
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA liza TO {HOSTS_ROLE};
REVOKE INSERT, UPDATE, DELETE ON liza.liza_schema FROM {HOSTS_ROLE};
"""


class Migration(Value):
    """One SQL file."""

    number: int
    name: str
    oldest_client: int
    sql: str


class Migrated(Value):
    """What was done: the numbers of the migrations, and whether the group role has its rights."""

    applied: tuple[int, ...]
    is_granted: bool


def read_migrations() -> tuple[Migration, ...]:
    """Return all migrations in their order."""
    migrations = []
    for path in sorted(_DIRECTORY.glob("[0-9]*.sql")):
        text = path.read_text()
        head = _HEAD.match(text)
        assert head is not None, f"{path.name} does not begin with its oldest client"
        migrations.append(Migration(int(path.name.partition("_")[0]), path.stem, int(head[1]), text))
    return tuple(migrations)


def migrate(address: BoardAddress) -> Migrated:
    """Apply the migrations that the database lacks, all or none, and give the group role its rights.

    Raises BoardServerRefused, BoardUnavailable, LockTimeout.
    """
    with refuse_unreachable():
        connection = connect_to_migrate(address)
    try:
        _refuse_other_owner(connection, address)
        connection.execute("BEGIN")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", _LOCK)
        applied = _apply(connection, address)
        is_granted = _grant(connection)
        connection.execute("COMMIT")
    finally:
        connection.close()
    return Migrated(applied, is_granted)


def _refuse_other_owner(connection: ServerConnection, address: BoardAddress) -> None:
    """Raise BoardServerRefused for a role that can neither create nor change the tables, such as that of a host."""
    row = connection.fetch_one(
        "SELECT coalesce((SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = 'liza'), "
        "has_database_privilege(current_database(), 'CREATE'))"
    )
    if row != (True,):
        role = address.parameters.get("user", "of this user")
        text = f"PostgreSQL at {address.server}: the role {role} does not own the tables, as a migration must"
        raise BoardServerRefused(text, f"liza board migrate '{address.url_of_role('OWNER')}'")


def _apply(connection: ServerConnection, address: BoardAddress) -> tuple[int, ...]:
    connection.execute(_PREPARE)
    done = {number for (number,) in connection.fetch_all("SELECT number FROM liza.liza_schema")}
    if done and max(done) > SCHEMA:
        raise BoardServerRefused(
            f"PostgreSQL at {address.server} has the schema {max(done)}; this Liza knows {SCHEMA}", "liza doctor"
        )
    missing = [migration for migration in read_migrations() if migration.number not in done]
    for migration in missing:
        connection.execute(migration.sql)
        connection.execute(
            "INSERT INTO liza.liza_schema (number, name, oldest_client) VALUES (%s, %s, %s)",
            migration.number,
            migration.name,
            migration.oldest_client,
        )
    return tuple(migration.number for migration in missing)


def _grant(connection: ServerConnection) -> bool:
    """Create the group role if it is missing and allowed, and give it its rights; return whether it has them."""
    (exists, allowed) = connection.fetch_one(
        "SELECT to_regrole(%s) IS NOT NULL, rolcreaterole OR rolsuper FROM pg_roles WHERE rolname = current_user",
        HOSTS_ROLE,
    ) or (False, False)
    if not exists and not allowed:
        return False
    if not exists:
        connection.execute("SAVEPOINT role")
        try:
            connection.execute(f"CREATE ROLE {HOSTS_ROLE} NOLOGIN")
        except (RowConflict, StatementFailed):  # another database of this server got it meanwhile
            connection.execute("ROLLBACK TO role")
    connection.execute(_GRANT)
    return True
