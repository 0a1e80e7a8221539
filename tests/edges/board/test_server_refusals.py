"""A PostgreSQL that cannot be used as it is addressed or set up: one sentence says what is wrong."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest

from liza.board.address import BoardAddress, parse_url
from liza.board.postgresql import connection as module
from liza.board.postgresql.connection import connect, connect_with_facts, refuse_unreachable
from liza.board.postgresql.migrations import migrate
from liza.model.errors import BoardServerRefused, BoardUnavailable, LizaError
from tests.certificates import Authority
from tests.conftest import until
from tests.postgresql import PostgreSQL
from tests.servers import choose_port
from tests.tools import Tools

SECRET = "s3cret-word"
HBA = """\
local all postgres trust
local all nomember trust
hostssl liza liza_h1 127.0.0.1/32 scram-sha-256
hostssl liza wants_cert 127.0.0.1/32 scram-sha-256 clientcert=verify-ca
hostssl nodb liza_h1 127.0.0.1/32 scram-sha-256
host all liza_plain 127.0.0.1/32 scram-sha-256
"""


class Far:
    """A server on TCP with TLS and passwords, and the files of its clients."""

    def __init__(self, server: PostgreSQL, authority: Authority, other: Authority, port: int, directory: Path) -> None:
        self.server = server
        self.authority = authority
        self.other = other
        self.port = port
        self.passfile = directory / "passfile"

    def address(self, role: str = "liza_h1", database: str = "liza", **changes: str) -> BoardAddress:
        """The right address, but for what is named."""
        host, port = changes.pop("host", "127.0.0.1"), changes.pop("port", self.port)
        files = {"sslrootcert": str(self.authority.certificate)} | changes
        query = "".join(f"&{name}={quote(value)}" for name, value in files.items() if value)
        return parse_url(f"postgresql://{role}@{host}:{port}/{database}?crew=shop{query}", "h1")

    def write_password(self, password: str) -> None:
        """What ``PGPASSFILE`` names."""
        self.passfile.write_text(f"*:*:*:*:{password}\n" if password else "")
        self.passfile.chmod(0o600)


@pytest.fixture(scope="module")
def far_server(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    """Started once for all rows."""
    directory = tmp_path_factory.mktemp("far")
    openssl = tools.find("openssl")
    authority, other = Authority(openssl, directory / "own"), Authority(openssl, directory / "other")
    port = choose_port()
    server = PostgreSQL(
        tools.find("postgresql"), {"listen_addresses": "127.0.0.1", "ssl": "on"}, is_safe=False, port=port
    )
    try:
        for file, name in zip(authority.sign("db.example", "IP:127.0.0.1"), ("server.crt", "server.key"), strict=True):
            server.put(file.read_bytes(), name)
        server.put(authority.certificate.read_bytes(), "root.crt")
        server.put(HBA.encode(), "pg_hba.conf")
        server.settings["ssl_ca_file"] = "root.crt"
        server.start()
        server.run_sql(
            "CREATE DATABASE liza",
            "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0",
            "CREATE DATABASE readonly",
            "ALTER DATABASE readonly SET default_transaction_read_only = on",
            "CREATE DATABASE lossy",
            "ALTER DATABASE lossy SET synchronous_commit = off",
            *(f"CREATE ROLE {role} LOGIN PASSWORD '{SECRET}'" for role in ("liza_h1", "wants_cert", "liza_plain")),
            "CREATE ROLE nomember LOGIN",
        )
        for database in ("liza", "lossy"):
            assert migrate(server.address(database)).is_granted
        server.run_sql("GRANT liza_hosts TO liza_h1, wants_cert")
        yield Far(server, authority, other, port, directory)
    finally:
        server.remove()


@pytest.fixture
def far(far_server: Far, monkeypatch: pytest.MonkeyPatch) -> Far:
    """With the right password."""
    far_server.write_password(SECRET)
    monkeypatch.setenv("PGPASSFILE", str(far_server.passfile))
    return far_server


def _refusal(address: BoardAddress) -> LizaError:
    """The error of a new address: exit code 5, one sentence, a command, no password."""
    with pytest.raises(BoardServerRefused) as caught, refuse_unreachable():
        connect(address)
    error = caught.value
    assert error.exit_code == 5
    assert error.message.count("\n") == 0
    assert error.hint
    assert SECRET not in f"{error.message}{error.hint}{error.__cause__}"
    return error


def test_the_right_address_reaches_the_tables_with_tls(far: Far) -> None:
    connection, facts = connect_with_facts(far.address())
    assert connection.fetch_one("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()") == (True,)
    assert connection.fetch_all("SELECT id FROM crew") == []
    assert [warning.partition("has ")[2] for warning in facts.warnings] == ["fsync=off: a power cut loses changes"]
    connection.close()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"host": "nowhere.invalid"}, "the host nowhere.invalid of the board is not known"),
        ({"role": "liza_hh"}, "allows no connection of the role liza_hh to the database liza from here"),
        ({"database": "nodb"}, "has no database nodb"),
        ({"database": "other"}, "allows no connection of the role liza_h1 to the database other from here"),
        ({"sslrootcert": "/nowhere/ca.crt"}, "the authority's certificate (sslrootcert), with which PostgreSQL at"),
        ({"sslrootcert": ""}, "the authority's certificate (sslrootcert), with which PostgreSQL at"),
        ({"host": "localhost"}, "is not that of localhost, or its authority (sslrootcert) is another one"),
        ({"role": "wants_cert"}, "refuses the client's certificate (sslcert)"),
        ({"role": "wants_cert", "sslcert": "/nowhere/h1.crt"}, "refuses the client's certificate (sslcert)"),
    ],
)  # fmt: skip
def test_a_wrong_address_is_refused_with_what_is_wrong(far: Far, changes: dict[str, str], sentence: str) -> None:
    assert sentence in _refusal(far.address(**changes)).message


def test_a_port_without_a_server_is_named(far: Far) -> None:
    port = choose_port()
    assert f"nothing listens at 127.0.0.1:{port}" in _refusal(far.address(port=str(port))).message


def test_a_wrong_or_missing_password_is_named(far: Far) -> None:
    far.write_password("wrong")
    assert "refuses the role liza_h1 or its password" in _refusal(far.address()).message
    assert _refusal(far.address()).hint == "ls -l ${PGPASSFILE:-~/.pgpass}"
    far.write_password("")
    assert "wants a password of the role liza_h1, and no passfile has one" in _refusal(far.address()).message


def test_the_credential_of_systemd_is_the_passfile(far: Far, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    far.write_password("wrong")
    shutil.copy(far.passfile, tmp_path / "liza-board")
    (tmp_path / "liza-board").write_text(f"*:*:*:*:{SECRET}\n")
    (tmp_path / "liza-board").chmod(0o400)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    connect(far.address()).close()


def test_the_certificate_of_another_authority_is_refused(far: Far) -> None:
    root = str(far.other.certificate)
    assert "is not that of 127.0.0.1, or its authority" in _refusal(far.address(sslrootcert=root)).message
    certificate, key = map(str, far.other.sign("h1"))
    address = far.address("wants_cert", sslcert=certificate, sslkey=key)
    assert "refuses the client's certificate (sslcert)" in _refusal(address).message
    certificate, key = map(str, far.authority.sign("h1"))
    connect(far.address("wants_cert", sslcert=certificate, sslkey=key)).close()
    Path(key).chmod(0o644)
    address = far.address("wants_cert", sslcert=certificate, sslkey=key)
    assert "the certificate or key of this client" in _refusal(address).message


def test_the_file_of_the_authority_is_named(far: Far) -> None:
    assert _refusal(far.address(sslrootcert="/nowhere/ca.crt")).hint == "ls -l /nowhere/ca.crt"


def test_a_migration_as_a_host_asks_for_the_owner(far: Far) -> None:
    with pytest.raises(BoardServerRefused, match="the role liza_h1 does not own the tables") as caught:
        migrate(far.address())
    assert "postgresql://OWNER@127.0.0.1:" in str(caught.value.hint)


def test_a_role_without_rights_is_named(far: Far) -> None:
    error = _refusal(far.server.address("liza", role="nomember"))
    assert "the role nomember lacks a right: permission denied for schema liza" in error.message
    assert error.hint == "psql -c 'GRANT liza_hosts TO nomember'"


@pytest.mark.parametrize(
    ("database", "sentence"),
    [
        ("latin", "the database latin has the encoding LATIN1, not UTF8"),
        ("readonly", "is a standby: it takes no changes"),
        ("postgres", "has not the tables of this Liza"),
        ("none", "has no database none"),
    ],
)
def test_a_database_that_cannot_have_a_board_is_refused(far: Far, database: str, sentence: str) -> None:
    assert sentence in _refusal(far.server.address(database)).message


def test_a_role_and_a_socket_that_do_not_exist_are_named(postgresql: PostgreSQL, tmp_path: Path) -> None:
    assert "has no role ann" in _refusal(postgresql.address(role="ann")).message
    address = parse_url(f"postgresql:///liza?crew=shop&host={tmp_path}")
    assert f"no PostgreSQL has the socket {tmp_path}/.s.PGSQL.5432" in _refusal(address).message


def test_a_server_that_loses_changes_is_warned_about(far: Far) -> None:
    connection, facts = connect_with_facts(far.server.address("lossy"))
    connection.close()
    names = [warning.partition("has ")[2].partition("=")[0] for warning in facts.warnings]
    assert names == ["fsync", "synchronous_commit"]


def test_an_old_server_is_refused(postgresql: PostgreSQL, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, "OLDEST_SERVER", 99)
        assert "a board needs 99 or newer" in _refusal(postgresql.address(database)).message


def test_a_server_without_tls_is_refused(tools: Tools, far: Far) -> None:
    port = choose_port()
    server = PostgreSQL(tools.find("postgresql"), {"listen_addresses": "127.0.0.1"}, port=port)
    try:
        server.start()
        assert "has no TLS, without which no password is sent there" in _refusal(far.address(port=str(port))).message
    finally:
        server.remove()


@pytest.mark.parametrize(
    ("password", "changes", "sentence"),
    [
        (f"{SECRET}-2", {}, "refuses the role liza_h1 or its password"),
        (SECRET, {"database": "nodb"}, "has no database nodb"),
        (SECRET, {"port": "1"}, "nothing listens at 127.0.0.1:1"),
        (SECRET, {"host": "localhost"}, "the certificate of PostgreSQL at localhost"),
    ],
)
def test_a_command_prints_one_sentence_and_no_password(
    far: Far, tmp_path: Path, password: str, changes: dict[str, str], sentence: str
) -> None:
    far.write_password(password)
    words = [sys.executable, "-m", "liza", "board", "migrate", far.address(**changes).full_url]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 5
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 2
    assert SECRET not in f"{done.stdout}{done.stderr}{words}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_what_is_no_postgresql_is_named(far: Far, answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        pid = os.fork()
        if pid == 0:
            with suppress(OSError):
                peer, _ = listener.accept()
                peer.recv(100)
                peer.sendall(answer)
                peer.close()
            os._exit(0)
        message = _refusal(far.address(port=str(port))).message
        os.waitpid(pid, 0)
    expected = f"what listens at 127.0.0.1:{port} is no PostgreSQL" if answer else "closed the connection"
    assert expected in message


def test_a_server_that_is_gone_is_unavailable(postgresql: PostgreSQL, database: str) -> None:
    connection = connect(postgresql.address(database))
    with pytest.raises(BoardUnavailable, match="is gone or does not answer") as caught:
        connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    assert caught.value.exit_code == 75
    assert connection.is_closed


POOLER = """\
[databases]
* = host={sockets} port={server_port}
[pgbouncer]
listen_addr =
unix_socket_dir = {directory}
listen_port = {port}
auth_type = trust
auth_file = {directory}/users
pool_mode = {mode}
logfile = {directory}/log
ignore_startup_parameters = extra_float_digits
"""


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_a_connection_pooler_is_found_and_refused(
    postgresql: PostgreSQL, database: str, tools: Tools, mode: str
) -> None:
    program = tools.find("pgbouncer")
    directory = postgresql.directory / f"pooler-{mode}"
    directory.mkdir()
    postgresql.give(directory)
    file = directory / "pgbouncer.ini"
    words = {"sockets": postgresql.sockets, "server_port": postgresql.port, "directory": directory, "mode": mode}
    (directory / "users").write_text('"postgres" ""\n')
    file.write_text(POOLER.format(port=6432, **words))
    pooler = subprocess.Popen([program, "-q", file], cwd="/", stderr=subprocess.DEVNULL, **postgresql.as_user())
    try:
        until((directory / ".s.PGSQL.6432").exists, "the pooler listens")
        address = parse_url(f"postgresql://postgres@/{database}?crew=shop&port=6432&host={directory}")
        assert (
            "is a connection pooler such as PgBouncer; a board needs a direct connection" in _refusal(address).message
        )
    finally:
        pooler.kill()
        pooler.wait()
