"""The address of a board in PostgreSQL: the URL, the crew, the name of this host, the git remote.

`.liza/board.toml` holds it in each clone. There is no password in it: libpq reads a passfile.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from liza.model.errors import UsageError
from liza.model.value_classes import Value
from liza.system import atomic, files, untrusted_files

EXAMPLE: Final = "postgresql://ROLE@HOST:5432/DATABASE?crew=NAME"
CREDENTIAL: Final = "liza-board"
"""Name of systemd's credential with the passfile: `LoadCredential=liza-board:/etc/liza/passfile`."""
DEFAULT_PORT: Final = "5432"
FULL_VERIFICATION: Final = "verify-full"
_SCHEMES: Final = ("postgresql", "postgres")
_TLS_FILES: Final = ("sslrootcert", "sslcert", "sslkey")
_PARAMETERS: Final = ("crew", "host", "port", "sslmode", *_TLS_FILES)
_CREW: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_HOST: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_MAX_FILE_SIZE: Final = 64 << 10  # bytes of board.toml


class BoardAddress(Value):
    """Where the board of a crew is. ``url`` is without ``crew``, and has no password.

    ``host`` is the name of this host in the crew, empty in a clone that runs no agents. ``remote`` is the git remote.
    """

    url: str
    crew: str
    host: str = ""
    remote: str = "origin"

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters of libpq that the URL names, and the mode of TLS: verify-full, but on a Unix socket."""
        split = urlsplit(self.url)
        named = {
            "host": unquote(split.hostname or ""),
            "port": str(split.port or ""),
            "user": unquote(split.username or ""),
            "dbname": unquote(split.path.removeprefix("/")),
        }
        parameters = {name: value for name, value in named.items() if value} | dict(parse_qsl(split.query))
        if not parameters["host"].startswith("/"):
            parameters["sslmode"] = FULL_VERIFICATION
        return parameters

    @property
    def server(self) -> str:
        """The server as errors name it: host and port, or the directory of the Unix socket."""
        parameters = self.parameters
        port = parameters.get("port", DEFAULT_PORT)
        host = parameters["host"]
        return f"{host}/.s.PGSQL.{port}" if host.startswith("/") else f"{host}:{port}"

    @property
    def full_url(self) -> str:
        """The URL with the crew, as `liza join` takes it."""
        return f"{self.url}{'&' if '?' in self.url else '?'}crew={self.crew}"

    def url_of_role(self, role: str) -> str:
        """The full URL for another role; as it is if it names none."""
        return re.sub(r"^(postgresql://)[^@/]*@", rf"\1{role}@", self.full_url)


def parse_url(text: str, host: str = "", remote: str = "origin") -> BoardAddress:
    """Return the address that a URL names. Raises UsageError, which never has a password in it."""
    try:
        split = urlsplit(text)
        port = split.port
    except ValueError:
        raise _refused("its host or port is malformed") from None
    if split.scheme not in _SCHEMES:
        raise _refused("it does not begin with postgresql://")
    if split.password is not None or "password" in (name for name, _ in parse_qsl(split.query)):
        raise UsageError(
            "the URL of a board may have no password: it would be in argv and in files. libpq reads the file that "
            f"PGPASSFILE names, or ~/.pgpass; a unit of systemd uses LoadCredential={CREDENTIAL}:FILE",
            "chmod 600 ~/.pgpass",
        )
    query = _parse_query(split.query)
    crew = query.pop("crew", "")
    if not _CREW.fullmatch(crew):
        expected = "letters, digits, '.', '_' and '-', at most 63"
        raise _refused(f"crew={crew} is no name of a crew: {expected}" if crew else "it names no crew")
    if "," in split.netloc or "," in query.get("host", ""):
        raise _refused("it names more than one host")
    if split.hostname and "host" in query:
        raise _refused("it names the host twice")
    if not split.path.strip("/") or "/" in split.path[1:] or split.fragment:
        raise _refused("it names no database" if not split.path.strip("/") else "its path is no name of a database")
    location = _parse_location(split.hostname or "", query)
    user = f"{quote(unquote(split.username))}@" if split.username else ""
    authority = f"{user}{location}" + (f":{port}" if port else "")
    url = f"postgresql://{authority}{split.path}" + (f"?{urlencode(query, safe='/')}" if query else "")
    return check_address(BoardAddress(url, crew, host, remote))


def check_address(address: BoardAddress) -> BoardAddress:
    """Return ``address`` if the names of host and remote are usable in paths and refs. Raises UsageError."""
    if address.host:
        check_host_name(address.host)
    if not address.remote or address.remote.startswith("-") or not address.remote.isprintable():
        raise UsageError(f"{address.remote!r} is not the name of a git remote", "git remote")
    return address


def check_host_name(name: str) -> str:
    """Return ``name`` if it can be the name of a host: it becomes part of paths and refs. Raises UsageError."""
    if not _HOST.fullmatch(name):
        raise UsageError(
            f"{name!r} is not the name of a host: lower case letters, digits and '-', at most 32",
            "liza help join",
        )
    return name


def _parse_query(text: str) -> dict[str, str]:
    pairs = parse_qsl(text, keep_blank_values=True)
    query = dict(pairs)
    if len(query) < len(pairs):
        raise _refused("it has a parameter twice")
    unknown = [name for name in query if name not in _PARAMETERS]
    if unknown:
        raise _refused(f"{unknown[0]} is no parameter of it: {', '.join(_PARAMETERS)}")
    if query.pop("sslmode", FULL_VERIFICATION) != FULL_VERIFICATION:
        raise _refused(f"sslmode may only be {FULL_VERIFICATION}: a password must not go to another server")
    return query


def _parse_location(hostname: str, query: dict[str, str]) -> str:
    """Return the host for the authority; empty if ``query`` names a Unix socket."""
    host = query.get("host", "")
    if host and not host.startswith("/"):
        raise _refused(f"host={host} is not the directory of a Unix socket; a host comes before the database")
    if host:
        return ""
    if not hostname:
        raise _refused("it names no host")
    if "port" in query:
        raise _refused("the port comes after the host, with a colon")
    return f"[{hostname}]" if ":" in hostname else hostname


def _refused(reason: str) -> UsageError:
    return UsageError(f"the URL of the board is refused: {reason}; expected is {EXAMPLE}", "liza help join")


def format_file(address: BoardAddress) -> str:
    """Return the text of `.liza/board.toml`."""
    rows = {"url": address.full_url, "host": address.host, "remote": address.remote}
    head = "# The board of this crew is in PostgreSQL. The file of PGPASSFILE has the password.\n"
    return head + "".join(f'{name} = "{_escape(value)}"\n' for name, value in rows.items() if value)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def parse_file(text: str) -> BoardAddress:
    """Return the address that the text of `.liza/board.toml` names. Raises UsageError."""
    try:
        table: Mapping[str, object] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f".liza/board.toml is no TOML: {error}", "cat .liza/board.toml") from error
    values = {name: value for name, value in table.items() if isinstance(value, str)}
    unknown = [name for name in table if name not in ("url", "host", "remote") or name not in values]
    if unknown or "url" not in values:
        reason = f"{unknown[0]} is no text that it may have" if unknown else "it has no url"
        raise UsageError(
            f".liza/board.toml is refused: {reason}; expected are url, host and remote", "cat .liza/board.toml"
        )
    return parse_url(values["url"], values.get("host", ""), values.get("remote", "origin"))


def read_address(path: Path) -> BoardAddress | None:
    """Return the address of a board in PostgreSQL; None if there is no such file. Raises UsageError."""
    data = untrusted_files.read_if_exists(path, _MAX_FILE_SIZE)
    return None if data is None else parse_file(data.decode(errors="replace"))


def write_address(path: Path, address: BoardAddress) -> None:
    """Write `.liza/board.toml`. Raises WriteFailed."""
    with files.convert_os_errors():
        atomic.write(path, format_file(address).encode(), 0o644)
