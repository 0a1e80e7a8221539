"""Several hosts on this machine: each has a clone, a HOME, and links to PostgreSQL and the remote that can be cut."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
_COMMAND_LIMIT = 120.0


def find_free_port() -> int:
    """Return a port of the loopback interface that nothing listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def run(words: Sequence[str], directory: Path, env: Mapping[str, str], stdin: str = "") -> str:
    """Run a command to its end and return its output. Raises AssertionError with all that it printed if it fails."""
    done = subprocess.run(
        list(words), cwd=directory, env=dict(env), input=stdin, capture_output=True, text=True, timeout=_COMMAND_LIMIT
    )
    assert done.returncode == 0, f"{' '.join(words)} exits with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@dataclass
class GitRemote:
    """A bare repository behind `git daemon` on a port of the loopback interface."""

    directory: Path
    port: int
    process: subprocess.Popen[bytes] = field(repr=False)

    def git(self, *words: str) -> str:
        """Return the output of git in the bare repository."""
        return run(["git", *words], self.directory, os.environ).strip()

    def stop(self) -> None:
        """End the daemon."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(timeout=30)


def start_remote(base: Path) -> GitRemote:
    """Make a bare repository that takes all pushes, and serve it."""
    directory, port = base / "remote.git", find_free_port()
    run(["git", "init", "-q", "--bare", "-b", "main", str(directory)], base, os.environ)
    words = ["git", "daemon", "--reuseaddr", "--export-all", "--enable=receive-pack", "--listen=127.0.0.1"]
    words += [f"--port={port}", f"--base-path={base}", "--log-destination=none", str(base)]
    process = subprocess.Popen(words, start_new_session=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: _is_open(port), "git daemon listens")
    return GitRemote(directory, port, process)


def _is_open(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def wait_until(condition: Callable[[], bool], what: str, limit: float = 60.0) -> None:
    """Wait for a condition of another process, of which no event tells."""
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, f"not within {limit:.0f} s: {what}"
        time.sleep(0.1)


class Host:
    """One host: its name, its clone, its environment, and the process that relays its connections."""

    def __init__(self, name: str, base: Path, postgresql: Path, remote: GitRemote) -> None:
        """``postgresql``: the server's socket."""
        self.name, self.base = name, base
        self.clone = base / "shop"
        self.sockets, self.port = base / "pg", find_free_port()
        self.env = self._make_environment()
        links = [f"unix:{self.sockets / postgresql.name}=unix:{postgresql}", f"tcp:{self.port}=tcp:{remote.port}"]
        self.relay = subprocess.Popen(
            [sys.executable, "-m", "tests.relay", *links],
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.relay.stdout is not None
        assert self.relay.stdout.readline() == b"ready\n"

    def _make_environment(self) -> dict[str, str]:
        home = self.base / "home"
        for directory in (home, self.sockets, self.base / "run"):
            directory.mkdir(parents=True, mode=0o700)
        (home / ".gitconfig").write_text(f"[user]\n\tname = {self.name}\n\temail = {self.name}@liza.invalid\n")
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("LIZA_", "GIT_", "PG", "XDG_"))
        }
        path = f"{Path(sys.executable).parent}:{kept['PATH']}"
        return {**kept, "HOME": str(home), "PATH": path, "XDG_RUNTIME_DIR": str(self.base / "run")}

    @property
    def remote_url(self) -> str:
        """Address of the remote through the link of this host."""
        return f"git://127.0.0.1:{self.port}/remote.git"

    def board_url(self, crew: str, database: str, role: str = "postgres") -> str:
        """Address of the board through the link of this host."""
        return f"postgresql://{role}@/{database}?host={self.sockets}&crew={crew}"

    def liza(self, *words: str, stdin: str = "") -> str:
        """Return the output of a command of Liza in the clone."""
        return run(["liza", *words], self.clone, self.env, stdin)

    def try_liza(self, *words: str, limit: float = _COMMAND_LIMIT) -> subprocess.CompletedProcess[str]:
        """Run a command of Liza that may fail."""
        return subprocess.run(
            ["liza", *words], cwd=self.clone, env=self.env, capture_output=True, text=True, timeout=limit, check=False
        )

    def git(self, *words: str) -> str:
        """Return the output of git in the clone."""
        return run(["git", *words], self.clone, self.env).strip()

    def status(self) -> dict[str, Any]:
        """Return `liza status --json`."""
        data: dict[str, Any] = json.loads(self.liza("status", "--json"))
        return data

    def clone_remote(self) -> None:
        """Clone the remote through the link of this host."""
        run(["git", "clone", "-q", self.remote_url, str(self.clone)], self.base, self.env)

    def cut(self) -> None:
        """Cut the host off: its connections neither answer nor end."""
        self.relay.send_signal(signal.SIGSTOP)

    def heal(self) -> None:
        """End the cut."""
        self.relay.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Stop the crew on this host, and its links."""
        self.heal()
        if (self.clone / ".liza").exists():
            with suppress(AssertionError, subprocess.TimeoutExpired):
                self.liza("down", "--now")
        assert self.relay.stdin is not None
        self.relay.stdin.close()
        self.relay.wait(timeout=30)


@contextmanager
def several_hosts(base: Path, names: Sequence[str], postgresql: Path) -> Iterator[tuple[GitRemote, dict[str, Host]]]:
    """Make a remote and hosts below ``base``, which needs a short path. ``postgresql``: the server's socket."""
    remote = start_remote(base)
    hosts: dict[str, Host] = {}
    try:
        for name in names:
            hosts[name] = Host(name, base / name, postgresql, remote)
        yield remote, hosts
    finally:
        for host in hosts.values():
            host.stop()
        remote.stop()
        shutil.rmtree(base, ignore_errors=True)
