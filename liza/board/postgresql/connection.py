"""A connection to the PostgreSQL of a board: statements, errors, timeouts. The only module that imports psycopg.

Statements are sent in autocommit: BEGIN and COMMIT are statements like others. Each has a time limit on both sides: the
server ends it (`lock_timeout`, `statement_timeout`, …), and a server that answers nothing is given up here.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from liza.board.address import CREDENTIAL, BoardAddress
from liza.board.postgresql.connect_failures import explain_failure, quote_server
from liza.model.errors import BoardInconsistent, BoardServerRefused, BoardUnavailable, LizaError, LockTimeout, Missing
from liza.model.value_classes import Value
from liza.system.clock import boottime
from liza.system.installation import extra_command, upgrade_command

try:
    import psycopg
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] not in ("psycopg", "psycopg_binary"):
        raise
    raise Missing("a board in PostgreSQL needs the package psycopg", extra_command("postgresql")) from error
except ImportError as error:  # psycopg without a libpq
    raise Missing(f"the package psycopg cannot be used: {error}", extra_command("postgresql")) from error

OLDEST_SERVER: Final = 15
SCHEMA: Final = 1
"""Number of the newest migration that this Liza knows."""
_CONNECT_LIMIT: Final = 5  # seconds
_LOOK_LIMIT: Final = 1.0
"""Seconds of silence while connecting after which a person who looks gets the last copy. libpq's limit is 2 or more,
from the first packet to the last: over a slow link that is not enough."""
_ANSWER_LIMIT: Final = 20.0  # seconds: more than any limit of the server
STATEMENT_TIMEOUT: Final = "15s"
_SETTINGS: Final = {
    "lock_timeout": "10s",
    "statement_timeout": STATEMENT_TIMEOUT,
    "idle_in_transaction_session_timeout": "5s",
    "search_path": "liza",
    "timezone": "UTC",
    "datestyle": "ISO",
    "client_min_messages": "warning",
}
TRANSACTION_TIMEOUT: Final = "20s"  # PostgreSQL 17 and newer: ends a client that reads nothing more
_PATIENT: Final = {
    "lock_timeout": "60s",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "60s",
}
_MIGRATION_LIMIT: Final = 3600.0  # seconds
_KEEPALIVE: Final = {
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",  # milliseconds
}
_CHECK: Final = (
    """
SELECT current_setting('server_version_num')::int, current_setting('server_encoding'), current_setting('fsync'),
       current_setting('synchronous_commit'), pg_backend_pid(), clock_timestamp(), pg_postmaster_start_time(),
       CASE WHEN current_setting('server_version_num')::int >= 170000
            THEN set_config('transaction_timeout', %s, false) END"""
    + ", set_config(%s, %s, false)" * len(_SETTINGS)
)
_LOST: Final = ("57P01", "57P02", "57P03", "57P05", "25P03", "25P04")
"""SQLSTATEs of a server that stops, or that has ended a transaction."""
_STATEMENT_TIMEOUT: Final = "57014"


StatementValues = Mapping[str, object] | Sequence[object]
"""Values of a statement: of ``%(name)s``, or of ``%s`` in their order."""


class PostgresFacts(Value):
    """What the server told when the connection was made. ``time`` is its clock at ``measured`` of CLOCK_BOOTTIME."""

    version: int
    time: datetime
    measured: float
    started: datetime
    warnings: tuple[str, ...]


class RowConflict(BoardInconsistent):
    """A row violates the constraint ``constraint``."""

    def __init__(self, message: str, constraint: str) -> None:
        super().__init__(message)
        self.constraint = constraint


class StatementFailed(LizaError):
    """The server refused a statement for a reason that only a bug explains."""


class _LimitedSession(psycopg.Connection[tuple[Any, ...]]):
    """A connection that gives up a server that does not answer."""

    answer_limit = _ANSWER_LIMIT

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        """Wait as psycopg does, but at most ``answer_limit`` seconds."""
        return super().wait(_give_up(gen, self.answer_limit), *args, **options)

    @contextmanager
    def waiting(self, seconds: float) -> Iterator[None]:
        """Give the server so much longer to answer."""
        limit = self.answer_limit
        self.answer_limit += seconds
        try:
            yield
        finally:
            self.answer_limit = limit


class _LookingSession(_LimitedSession):
    """A connection of a person who looks: it is given up after _LOOK_LIMIT of silence."""

    @classmethod
    def _connect_gen(cls, *args: Any, **options: Any) -> Any:
        return _give_up(super()._connect_gen(*args, **options), _LOOK_LIMIT)


def _give_up(inner: Generator[Any, Any, Any], limit: float) -> Generator[Any, Any, Any]:
    """Pass on what psycopg waits for. Every 0.1 s it hears that nothing came; after ``limit`` it hears no more."""
    heard = time.monotonic()
    try:
        wanted = next(inner)
        while True:
            ready = yield wanted
            if ready:
                heard = time.monotonic()
            elif time.monotonic() - heard > limit:
                inner.close()
                raise psycopg.OperationalError(f"timeout: no answer within {limit:g} s")
            wanted = inner.send(ready)
    except StopIteration as done:
        return done.value


class ServerConnection:
    """A connection in autocommit. Not safe in several threads, and of no use in a forked child.

    Methods raise BoardUnavailable if the connection is lost or the server does not answer in time; ``is_closed`` is
    True then. They raise LockTimeout, RowConflict, BoardServerRefused for a right that the role lacks, and
    StatementFailed.
    """

    def __init__(self, session: _LimitedSession, address: BoardAddress) -> None:
        self._session = session
        self._cursor = session.cursor()
        self._composer = psycopg.ClientCursor(session)
        self._address = address

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed or lost."""
        return self._session.closed

    @property
    def backend_pid(self) -> int:
        """The pid of the server's process, as the server names it at the start."""
        return self._session.pgconn.backend_pid

    def fileno(self) -> int:
        """Return the descriptor of the socket: it is readable when a notification came."""
        return self._session.fileno()

    def execute(self, sql: str, *values: object) -> int:
        """Run a statement; return the number of rows. Without ``values`` it may be several statements."""
        with self._errors():
            return self._run(sql, values).rowcount

    def fetch_all(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a query; return its rows."""
        with self._errors():
            return self._run(sql, values).fetchall()

    def fetch_one(self, sql: str, *values: object) -> tuple[Any, ...] | None:
        """Run a query; return its first row, None if it has none."""
        with self._errors():
            return self._run(sql, values).fetchone()

    def execute_named(self, sql: str, **values: object) -> int:
        """As ``execute``, with values that the statement names: ``%(crew)s``."""
        with self._errors():
            return self._cursor.execute(sql.encode(), values).rowcount

    def fetch_named(self, sql: str, **values: object) -> list[tuple[Any, ...]]:
        """As ``fetch_all``, with values that the query names."""
        with self._errors():
            return self._cursor.execute(sql.encode(), values).fetchall()

    def execute_many(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        """Run a statement for each row of values, in one round trip."""
        with self._errors():
            self._cursor.executemany(sql.encode(), rows)

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction is open, or has failed and must be ended."""
        status = psycopg.pq.TransactionStatus
        return self._session.pgconn.transaction_status in (status.INTRANS, status.INERROR)

    def run_together(
        self, statements: Sequence[tuple[str, StatementValues]], patience: float = 0
    ) -> list[list[tuple[Any, ...]]]:
        """Run statements in one round trip, each when the one before has ended; return the rows of each.

        ``patience``: seconds for which the statements may wait for a lock, beyond the usual limit of an answer.
        They are one message with the values in it. In psycopg's pipelines, PostgreSQL 15 did not end a client that
        stopped in a transaction: `idle_in_transaction_session_timeout` passed without effect.
        """
        with self._errors():
            composed = "; ".join(self._composer.mogrify(sql.encode(), values or None) for sql, values in statements)
            with self._session.waiting(patience):
                cursor = self._session.execute(composed.encode())
            results = [cursor.fetchall() if cursor.description else []]
            while cursor.nextset():
                results.append(cursor.fetchall() if cursor.description else [])
            return results

    def roll_back(self) -> None:
        """Undo the open transaction. A connection that is lost has none."""
        if self.is_in_transaction:
            with suppress(BoardUnavailable):
                self.execute("ROLLBACK")

    def listen(self, channel: str) -> None:
        """Ask for the notifications of a channel; any text up to 63 bytes is a name of it."""
        self.execute(f"LISTEN {_quote(channel)}")

    def notify(self, channel: str) -> None:
        """Send a notification. Not in the transaction of a change: its commit takes a lock of the whole server, and
        would hold it until the change is on the disk."""
        self.execute(f"BEGIN; SET LOCAL synchronous_commit = off; NOTIFY {_quote(channel)}; COMMIT")

    def take_notifications(self, timeout: float = 0) -> int:
        """Wait at most ``timeout`` seconds for notifications of others; return how many there are, and forget them."""
        with self._errors():
            # What was read behind the answer to a statement is not found by waiting: the socket has no more data.
            read = sum(row.be_pid != self.backend_pid for row in iter(self._session.pgconn.notifies, None))
            notifications = self._session.notifies(timeout=0 if read else timeout, stop_after=1)
            return read + sum(notification.pid != self.backend_pid for notification in notifications)

    def close(self) -> None:
        """Close the connection. What was not committed is undone."""
        self._session.close()

    def _run(self, sql: str, values: Sequence[object]) -> psycopg.Cursor[tuple[Any, ...]]:
        return self._cursor.execute(sql.encode(), values or None)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            if self._session.pgconn.transaction_status == psycopg.pq.TransactionStatus.ACTIVE:
                self._session.close()  # An answer that comes late would be taken as the answer of the next statement.
            raise _to_error(error, self._address, is_lost=self._session.closed) from error


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _to_error(error: psycopg.Error, address: BoardAddress, *, is_lost: bool) -> LizaError:
    """Return the error of a statement. The values of rows are in the detail of psycopg's error, which is left out."""
    state = error.sqlstate or ""
    reason = error.diag.message_primary or quote_server(str(error))
    at = f"PostgreSQL at {address.server}"
    if state == "55P03":
        return LockTimeout(f"{at}: another change of the crew {address.crew} took too long", "liza status")
    if state == _STATEMENT_TIMEOUT:
        return BoardUnavailable(f"{at} did not end a statement within {STATEMENT_TIMEOUT}", "liza doctor")
    if is_lost or state in _LOST:
        return BoardUnavailable(f"{at} is gone or does not answer: {reason}", "liza doctor")
    if state[:2] == "53":
        return BoardUnavailable(f"{at} lacks room: {reason}", "liza doctor")
    if state[:2] == "23":
        return RowConflict(reason, error.diag.constraint_name or "")
    if state in ("42P01", "3F000", "42703"):
        return BoardServerRefused(f"{at}: the database has not the tables of this Liza: {reason}", _migrate(address))
    if state == "42501":
        role = address.parameters.get("user", "of this user")
        return BoardServerRefused(
            f"{at}: the role {role} lacks a right: {reason}", f"psql -c 'GRANT liza_hosts TO {role}'"
        )
    if state == "25006":
        return BoardServerRefused(f"{at} is a standby: it takes no changes", "liza doctor")
    return StatementFailed(f"{at}: {reason} ({state or type(error).__name__})")


def _migrate(address: BoardAddress) -> str:
    return f"liza board migrate '{address.url_of_role('OWNER')}'"


def connect(address: BoardAddress, answer_limit: float = _ANSWER_LIMIT) -> ServerConnection:
    """Return a connection to the server of ``address``, whose tables this Liza can use.

    ``answer_limit``: seconds after which a server that does not answer is given up. Raises BoardServerRefused,
    BoardUnavailable.
    """
    return connect_with_facts(address, answer_limit)[0]


def connect_with_facts(
    address: BoardAddress, answer_limit: float = _ANSWER_LIMIT, *, is_look: bool = False
) -> tuple[ServerConnection, PostgresFacts]:
    """As ``connect``; also return what the server told. ``is_look``: a person looks, and there is a last copy."""
    if is_look:
        _refuse_slow_name(address)
    connection, facts = _connect(
        address, _SETTINGS, TRANSACTION_TIMEOUT, answer_limit, _LookingSession if is_look else _LimitedSession
    )
    try:
        check_schema(connection, address)
    except BaseException:
        connection.close()
        raise
    return connection, facts


def _refuse_slow_name(address: BoardAddress) -> None:
    """Raise BoardUnavailable if the name of the server is not resolved within _LOOK_LIMIT: a resolver without a network
    takes many seconds, and cannot be interrupted."""
    host = address.parameters["host"]
    if host.startswith("/"):
        return

    def resolve() -> None:
        with suppress(OSError):  # Why it fails, the connection tells.
            socket.getaddrinfo(host, None)

    resolver = threading.Thread(target=resolve, daemon=True)
    resolver.start()
    resolver.join(_LOOK_LIMIT)
    if resolver.is_alive():
        raise explain_failure("name resolution takes too long", address)


@contextmanager
def refuse_unreachable() -> Iterator[None]:
    """Raise BoardServerRefused for a server that cannot be reached, where the address is new: it may be wrong."""
    try:
        yield
    except BoardUnavailable as error:
        raise BoardServerRefused(error.message, error.hint) from error


def connect_to_migrate(address: BoardAddress) -> ServerConnection:
    """As ``connect``, without time limits of statements, and whatever tables there are."""
    return _connect(address, _SETTINGS | _PATIENT, "0", _MIGRATION_LIMIT)[0]


def _connect(
    address: BoardAddress,
    settings: Mapping[str, str],
    transaction_timeout: str,
    answer_limit: float,
    session_class: type[_LimitedSession] = _LimitedSession,
) -> tuple[ServerConnection, PostgresFacts]:
    try:
        session = session_class.connect(autocommit=True, **_build_parameters(address))
    except psycopg.Error as error:
        raise explain_failure(str(error), address) from error
    session.answer_limit = answer_limit
    connection = ServerConnection(session, address)
    try:
        return connection, _prepare(connection, address, settings, transaction_timeout)
    except BaseException:
        connection.close()
        raise


def _build_parameters(address: BoardAddress) -> dict[str, Any]:
    # GSS encryption would come before TLS, without the check of the certificate.
    fixed = {"client_encoding": "UTF8", "connect_timeout": str(_CONNECT_LIMIT), "gssencmode": "disable"}
    names = {"application_name": f"liza {address.crew} {address.host}".strip(), "target_session_attrs": "read-write"}
    credentials = os.environ.get("CREDENTIALS_DIRECTORY", "")
    passfile = {"passfile": str(Path(credentials, CREDENTIAL))} if credentials else {}
    return address.parameters | _KEEPALIVE | fixed | names | passfile


def _prepare(
    connection: ServerConnection, address: BoardAddress, settings: Mapping[str, str], transaction_timeout: str
) -> PostgresFacts:
    """Set the time limits of the session, and refuse a server that cannot have a board."""
    words = [word for pair in settings.items() for word in pair]
    sent = boottime()
    row = connection.fetch_one(_CHECK, transaction_timeout, *words)
    received = boottime()
    assert row is not None
    version, encoding, fsync, synchronous_commit, pid, now, started = row[:7]
    at = f"PostgreSQL at {address.server}"
    if version < OLDEST_SERVER * 10_000:
        raise BoardServerRefused(
            f"{at} is version {version // 10_000}; a board needs {OLDEST_SERVER} or newer", "psql -V"
        )
    if encoding != "UTF8":
        database = address.parameters["dbname"]
        create = f"createdb -T template0 -E UTF8 {database}"
        raise BoardServerRefused(f"{at}: the database {database} has the encoding {encoding}, not UTF8", create)
    if pid != connection.backend_pid:
        # PgBouncer gives each client a pid of its own. In its transaction mode time limits, LISTEN and prepared
        # statements of a session are lost, or are those of another client.
        raise BoardServerRefused(
            f"{address.server} is a connection pooler such as PgBouncer; a board needs a direct connection",
            "liza doctor",
        )
    lossy = {"fsync": fsync, "synchronous_commit": synchronous_commit}
    warnings = [f"{at} has {name}=off: a power cut loses changes" for name, value in lossy.items() if value == "off"]
    return PostgresFacts(version, now, (sent + received) / 2, started, tuple(warnings))


def check_schema(connection: ServerConnection, address: BoardAddress) -> None:
    """Check that this Liza can use the tables. Raises BoardServerRefused."""
    row = connection.fetch_one("SELECT max(number), max(oldest_client) FROM liza.liza_schema")
    number, oldest_client = row or (None, None)
    at = f"PostgreSQL at {address.server}"
    if number is None or number < SCHEMA:
        raise BoardServerRefused(
            f"{at}: its tables are of schema {number or 0}; this Liza needs {SCHEMA}", _migrate(address)
        )
    if oldest_client > SCHEMA:
        raise BoardServerRefused(
            f"{at}: its tables are of schema {number}; this Liza knows {SCHEMA}, and {oldest_client} is needed",
            upgrade_command(),
        )
