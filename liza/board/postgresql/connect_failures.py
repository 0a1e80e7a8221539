"""Why a connection to PostgreSQL failed, as one sentence with the value that is wrong. Pure.

libpq and the server say it in English or in the language of the server; what matches no row is quoted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from liza.board.address import DEFAULT_PORT, BoardAddress
from liza.model.errors import BoardServerRefused, BoardUnavailable, LizaError


class _Names(NamedTuple):
    """The values of the address that sentences and commands name."""

    host: str
    port: str
    role: str
    database: str
    server: str
    authority: str
    passfile: str = "${PGPASSFILE:-~/.pgpass}"


class _Cause(NamedTuple):
    """A cause: a pattern of libpq's text, the sentence, and a command that shows more or helps.

    ``may_pass``: the server may be back soon, at the same address.
    """

    pattern: str
    sentence: str
    hint: str
    may_pass: bool = False


_VERIFY: Final = "openssl s_client -starttls postgres -connect {server}"
_ASK: Final = "pg_isready -h {host} -p {port}"
_CAUSES: Final = (
    _Cause(r"password authentication failed", "{at} refuses the role {role} or its password", "ls -l {passfile}"),
    _Cause(
        r"no password supplied|empty password",
        "{at} wants a password of the role {role}, and no passfile has one",
        "echo '{host}:{port}:{database}:{role}:PASSWORD' >> {passfile} && chmod 600 {passfile}",
    ),
    _Cause(r"role \".*\" does not exist", "{at} has no role {role}", "createuser -h {host} -p {port} {role}"),
    _Cause(
        r"Peer authentication failed|Ident authentication failed",
        "{at} does not take this user as the role {role}",
        "id -un",
    ),
    _Cause(
        r"role \".*\" is not permitted to log in",
        "{at}: the role {role} may not log in",
        "psql -c 'ALTER ROLE {role} LOGIN'",
    ),
    _Cause(
        r"database \".*\" does not exist",
        "{at} has no database {database}",
        "createdb -h {host} -p {port} {database}",
    ),
    _Cause(
        r"permission denied for database",
        "{at}: the role {role} may not connect to the database {database}",
        "psql -c 'GRANT CONNECT ON DATABASE {database} TO {role}'",
    ),
    _Cause(
        r"no pg_hba.conf entry",
        "{at} allows no connection of the role {role} to the database {database} from here",
        "psql -c 'SELECT * FROM pg_hba_file_rules'",
    ),
    _Cause(
        r"requires a valid client certificate|certificate authentication failed|unknown ca|alert certificate",
        "{at} refuses the client's certificate (sslcert)",
        _VERIFY,
    ),
    _Cause(
        r"root certificate file .* does not exist|could not read root certificate|weak sslmode|sslrootcert",
        "the authority's certificate (sslrootcert), with which {at} is verified, cannot be read",
        "ls -l {authority}",
    ),
    _Cause(
        r"private key file|could not load private key|certificate file|could not open certificate",
        "the certificate or key of this client (sslcert, sslkey) cannot be used",
        "ls -l ~/.postgresql",
    ),
    _Cause(
        r"certificate verify failed|does not match host name|self.signed",
        "the certificate of {at} is not that of {host}, or its authority (sslrootcert) is another one",
        _VERIFY,
    ),
    _Cause(r"does not support SSL", "{at} has no TLS, without which no password is sent there", "psql -c 'SHOW ssl'"),
    _Cause(
        r"invalid response to SSL negotiation|expected authentication request|unsupported protocol",
        "what listens at {server} is no PostgreSQL",
        _ASK,
    ),
    _Cause(
        r"unsupported startup parameter|pgbouncer cannot connect|no such database: ",
        "{server} is a connection pooler such as PgBouncer; a board needs a direct connection",
        "liza doctor",
    ),
    _Cause(
        r"session is read-only|cannot execute .* in a read-only",
        "{at} is a standby: it takes no changes",
        "liza doctor",
    ),
    _Cause(
        r"failed to resolve host|could not translate host name|Name or service not known|name resolution",
        "the host {host} of the board is not known",
        "getent hosts {host}",
        True,
    ),
    _Cause(r"No such file or directory", "no PostgreSQL has the socket {server}", "ls -la {host}", True),
    _Cause(
        r"Connection refused",
        "nothing listens at {server}: the port is another one, or PostgreSQL does not run",
        _ASK,
        True,
    ),
    _Cause(
        r"starting up|shutting down|recovery mode|not yet accepting|too many c|remaining connection slots",
        "{at} takes no connections now: {reason}",
        _ASK,
        True,
    ),
    _Cause(r"timeout|timed out|No route to host|unreachable", "{at} does not answer", _ASK, True),
    _Cause(
        r"server closed the connection|reset by peer|Broken pipe|EOF detected", "{at} closed the connection", _ASK, True
    ),
)


def explain_failure(text: str, address: BoardAddress) -> LizaError:
    """Return the error for ``text``, the text of libpq: BoardUnavailable if a later try may succeed."""
    parameters = address.parameters
    names = _Names(
        parameters["host"],
        parameters.get("port", DEFAULT_PORT),
        parameters.get("user", "of this user"),
        parameters["dbname"],
        address.server,
        parameters.get("sslrootcert", "~/.postgresql/root.crt"),
    )
    for cause in _CAUSES:
        if re.search(cause.pattern, text):
            build: Callable[[str, str], LizaError] = BoardUnavailable if cause.may_pass else BoardServerRefused
            values = names._asdict() | {"at": f"PostgreSQL at {names.server}", "reason": quote_server(text)}
            return build(cause.sentence.format(**values), cause.hint.format(**values))
    return BoardServerRefused(
        f"PostgreSQL at {names.server} refuses the connection: {quote_server(text)}", "liza doctor"
    )


def quote_server(text: str) -> str:
    """Return the last line of a text of libpq without its address and severity."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1] if lines else "no reason given"
    return re.sub(r"^.*(failed: |FATAL:\s+|ERROR:\s+)", "", last).rstrip(".")
