"""Hosts of one crew as directories of this machine, each with a host process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from liza.board.address import parse_url, write_address
from liza.board.postgresql.connection import connect
from liza.board.postgresql.hosts_table import HostsTable
from liza.board.rules.host_leases import HostLease, HostTable
from liza.hosts import lease_file
from liza.hosts.host_process import LOOK_SECONDS
from liza.model.paths import Paths
from liza.programs import liveness
from liza.programs.liveness import RunningSession
from liza.programs.session import session_process
from tests.conftest import until

RUN = """\
import sys
from pathlib import Path
from liza.hosts import host_process
from liza.supervisor.host_work import main
host_process.LOOK_SECONDS = float(sys.argv[2])
sys.exit(main(Path(sys.argv[1]), until_idle=False))
"""


class HostRig:
    """A directory that is a host, and its process."""

    look_seconds = LOOK_SECONDS
    """Seconds between two looks of the host process for changes of which no notification came."""

    def __init__(self, root: Path, url: str, name: str) -> None:
        self.paths = Paths(root)
        self.name = name
        self.address = parse_url(url, name)
        self.log = root / "log"
        self.process: subprocess.Popen[bytes] | None = None
        for directory in (self.paths.locks, self.paths.runs, self.paths.logs):
            directory.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "init", "-q", str(root)], check=True)
        write_address(self.paths.board_address, self.address)

    def start(self) -> subprocess.Popen[bytes]:
        """Start the host process, as `liza host run` does: without supervisors, that of `liza up` would end."""
        with self.log.open("ab") as log:
            words = [sys.executable, "-c", RUN, str(self.paths.root), str(self.look_seconds)]
            self.process = subprocess.Popen(words, stdout=log, stderr=log)
        return self.process

    def start_and_wait(self) -> HostLease:
        """Start the host process, and wait for its lease."""
        before = self.lease()
        self.start()
        until(lambda: self.lease() not in (before, None), "the host has a lease")
        lease = self.lease()
        assert lease is not None
        return lease

    def start_session(self, run: str) -> Path:
        """Start a session that ends only if it is ended; its run directory."""
        directory = self.paths.run(run)
        directory.mkdir(parents=True)
        env = {"PATH": "/usr/bin:/bin", "LIZA_RUN": run, "LIZA_ROOT": str(self.paths.root)}
        started = session_process.start(directory, ["sleep", "600"], self.paths.root, env)
        assert isinstance(started, RunningSession), started
        return directory

    def session_end(self, run: str) -> liveness.EndedSession | None:
        """How the session ended; None while it lives."""
        return liveness.read_end(self.paths.run(run))

    def lease(self) -> HostLease | None:
        """What the host knows of its lease."""
        return lease_file.read_lease(self.paths)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End the process; its exit status."""
        process, self.process = self.process, None
        if process is None:
            return 0
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.send_signal(number)
        return process.wait(30)

    def table(self) -> HostTable:
        """The hosts as the database has them."""
        connection = connect(self.address)
        try:
            return HostsTable(connection, self.address.crew).read()
        finally:
            connection.close()
