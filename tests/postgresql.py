"""A real PostgreSQL for tests: the binaries of the system or of a wheel, on a Unix socket, ended with this process."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from liza.board.address import BoardAddress, parse_url
from liza.board.postgresql.connection import ServerConnection, connect_to_migrate
from liza.board.postgresql.migrations import migrate
from liza.model.errors import BoardUnavailable

PREFIX = "liza-postgresql."
OWNER = "postgres"
TEMPLATE = "liza_template"
PORT = 5432
"""The number in the name of the socket."""
_LIMIT = 60.0
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of the kernel's linux/prctl.h


def find_room() -> Path:
    """A directory for servers that any user can enter, in memory if there is one; without what dead tests left."""
    memory = Path("/dev/shm")
    room = memory if os.access(memory, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    for left in room.glob(f"{PREFIX}*"):
        if left.owner() == pwd.getpwuid(os.geteuid()).pw_name and not _is_alive(left.name.split(".")[1]):
            shutil.rmtree(left, ignore_errors=True)
    return room


def _is_alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class PostgreSQL:
    """A server of its own. PostgreSQL refuses to run as root: then it runs as nobody.

    ``settings`` are those of postgresql.conf; ``is_safe=False`` switches fsync off. ``room``: where its files
    are; any user can enter it.
    """

    def __init__(
        self,
        postgres: Path,
        settings: Mapping[str, str] | None = None,
        *,
        is_safe: bool = True,
        port: int = PORT,
        room: Path | None = None,
    ) -> None:
        self._binaries = postgres.parent
        self.port = port
        self.settings = {"fsync": "on" if is_safe else "off"} | dict(settings or {})
        self.directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}.", dir=room or find_room()))
        self.directory.chmod(0o755)
        self.data = self.directory / "data"
        self.sockets = self.directory / "s"
        self.log = self.directory / "log"
        self.user = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
        for directory in (self.data, self.sockets):
            directory.mkdir(mode=0o700 if directory == self.data else 0o755)
            self.give(directory)
        if os.geteuid() == 0 and not self._can_run():
            self._copy_binaries()
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)
        self._initialise()

    def give(self, path: Path) -> None:
        """Give a file to the user of the server."""
        if os.geteuid() == 0:
            os.chown(path, self.user.pw_uid, self.user.pw_gid)

    def put(self, data: bytes, name: str) -> None:
        """Write a file of the data directory, such as pg_hba.conf."""
        path = self.data / name
        path.write_bytes(data)
        path.chmod(0o600)
        self.give(path)

    def _can_run(self) -> bool:
        try:
            return self._run("postgres", "--version").returncode == 0
        except OSError:
            return False

    def _copy_binaries(self) -> None:
        """The environment may be in a directory that only root can enter."""
        wheel = self._binaries.parents[1]
        target = self.directory / wheel.name
        shutil.copytree(self._binaries.parent, target / self._binaries.parent.name, symlinks=True)
        libraries = wheel.with_name(f"{wheel.name}.libs")
        if libraries.exists():
            shutil.copytree(libraries, target.with_name(libraries.name))
        self._binaries = target / self._binaries.parent.name / "bin"

    def as_user(self) -> dict[str, Any]:
        """The arguments of Popen for a process of the user of the server."""
        if os.geteuid() != 0:
            return {}
        return {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}

    def _run(self, program: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
        command = [str(self._binaries / program), *map(str, words)]
        return subprocess.run(
            command, cwd="/", env=self._environ(), capture_output=True, text=True, timeout=_LIMIT, **self.as_user()
        )

    def _environ(self) -> dict[str, str]:
        return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC", "HOME": str(self.directory)}

    def _initialise(self) -> None:
        done = self._run("initdb", "-D", self.data, "-U", OWNER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.sockets),
            "port": str(self.port),
            "max_connections": "300",
            "shared_buffers": "32MB",
            "autovacuum": "off",
        } | self.settings
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self.data, *words],
                cwd="/",
                env=self._environ(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_end_with_parent,
                **self.as_user(),
            )
        self._wait()

    def _wait(self) -> None:
        end = time.monotonic() + _LIMIT
        while not self._answers():
            assert self._process is not None
            assert self._process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            self.connect().close()
        except BoardUnavailable:
            return False
        return True

    def stop(self, signal_number: int = signal.SIGINT) -> None:
        """End the server: clients are disconnected. SIGQUIT ends it as a crash does."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal_number)
            process.wait(_LIMIT)

    def kill(self) -> None:
        """Kill all processes of the server at once, as a power cut does; the data stay."""
        process, self._process = self._process, None
        assert process is not None
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for pid in [process.pid, *map(int, children)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(_LIMIT)
        (self.data / "postmaster.pid").unlink()

    def remove(self) -> None:
        """Stop the server, and remove its files."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def is_running(self) -> bool:
        """Whether the server was started and not stopped since."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """The pid of the first process of the server."""
        assert self._process is not None
        return self._process.pid

    def url(self, database: str = OWNER, crew: str = "shop", role: str = OWNER) -> str:
        """The URL of a database through the Unix socket."""
        port = "" if self.port == PORT else f"&port={self.port}"
        return f"postgresql://{role}@/{database}?host={self.sockets}{port}&crew={crew}"

    def address(self, database: str = OWNER, crew: str = "shop", role: str = OWNER, host: str = "") -> BoardAddress:
        """As ``url``, parsed."""
        return parse_url(self.url(database, crew, role), host)

    def connect(self, database: str = OWNER) -> ServerConnection:
        """A connection of the owner, without time limits."""
        return connect_to_migrate(self.address(database))

    def run_sql(self, *statements: str, database: str = OWNER) -> None:
        """Run statements as the owner."""
        connection = self.connect(database)
        try:
            for statement in statements:
                connection.execute(statement)
        finally:
            connection.close()

    def make_template(self) -> None:
        """Make the database that those of tests are copied from."""
        self.run_sql(f"CREATE DATABASE {TEMPLATE}")
        migrate(self.address(TEMPLATE))
        self.run_sql(f"ALTER DATABASE {TEMPLATE} ALLOW_CONNECTIONS false")

    def create_database(self) -> str:
        """The name of a new database with the tables of a board."""
        name = f"liza_{next(self._numbers)}"
        self.run_sql(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY file_copy")
        return name

    def drop_database(self, name: str) -> None:
        """Remove a database, whoever is connected to it."""
        self.run_sql(f"DROP DATABASE {name} WITH (FORCE)")


def _end_with_parent() -> None:
    with suppress(AttributeError):  # Linux has prctl
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGQUIT, 0, 0, 0)


@contextmanager
def run_server(server: PostgreSQL) -> Iterator[PostgreSQL]:
    """Run a server, with the tables of a board in its template."""
    try:
        server.start()
        server.make_template()
        yield server
    finally:
        server.remove()
