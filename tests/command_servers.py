"""The command server of a test run: one for each process of pytest, and a count of the commands that used it.

A test starts installed commands as a person does. A command is meant to be served if it was started by the process of
pytest with the socket of its server, and its declaration does not make it run directly. ``python -m
tests.command_servers`` is the server; it writes a byte for each command of that process which it runs.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

VARIABLE = "LIZA_COMMAND_SERVER"
BIN = Path(sys.executable).parent
ROOT = Path(__file__).parents[1]
LEAST_SHARE = 0.9
"""Share of the commands meant to be served below which a run fails."""
LEAST_COMMANDS = 50
"""Number of commands from which the share says something: a few tests may start unusual ones only."""
LIMIT = 60.0


class Usage(NamedTuple):
    """How many commands were meant to be served, and how many were."""

    meant: int = 0
    served: int = 0

    def __add__(self, other: tuple[int, ...]) -> Usage:  # type: ignore[override]
        return Usage(*(mine + more for mine, more in zip(self, other, strict=True)))

    def is_enough(self) -> bool:
        return self.meant < LEAST_COMMANDS or self.served >= LEAST_SHARE * self.meant

    def __str__(self) -> str:
        return f"{self.served} of {self.meant} commands ran in a command server"


class TestServer:
    """A running server, and the commands that this process starts for it."""

    __test__ = False

    def __init__(self, path: Path, log: Path) -> None:
        self.socket, self._log = path, log
        self._meant: list[list[str]] = []

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note a start of ``liza`` by this process: an audit hook."""
        if event == "subprocess.Popen" and isinstance(arguments[1], list | tuple):
            words = [os.fsdecode(word) for word in arguments[1]]
            if words[:1] in (["liza"], [str(BIN / "liza")]) and self._is_named(arguments[3] or os.environ):
                self._meant.append(words[1:])

    def _is_named(self, environ: Mapping[Any, Any]) -> bool:
        variables = {os.fsdecode(name): os.fsdecode(value) for name, value in environ.items()}
        return variables.get(VARIABLE) == str(self.socket) and not any(name.startswith("PYTHON") for name in variables)

    def count_usage(self) -> Usage:
        return Usage(sum(map(is_served, self._meant)), self._log.stat().st_size)


def is_served(words: Sequence[str]) -> bool:
    """Return whether a command with these words, not at a terminal, is left to the server."""
    from liza.cli.app import find_process
    from liza.commands._declare import Process

    return find_process(words) is not Process.DIRECT


@contextmanager
def running_server(directory: Path) -> Iterator[TestServer]:
    """Run a server whose socket is in ``directory``, which only this user may use; it is stopped by its pid."""
    directory.chmod(0o700)
    server = TestServer(directory / "socket", directory / "commands")
    server._log.touch()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.command_servers", server.socket, server._log, str(os.getpid())],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith(("LIZA_", "PYTHON"))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n", "the command server does not start"
        yield server
    finally:
        process.terminate()
        try:
            process.wait(timeout=LIMIT)
        except subprocess.TimeoutExpired:  # It waits for a command that a test has left.
            process.kill()
            process.wait()


def _serve(path: Path, log: Path, parent: int) -> None:
    """Be the server; write a byte to ``log`` for each command of the process ``parent`` that is about to run."""
    from liza.cli.server import served_command, server

    act_for = served_command.peers.act_for

    def act_and_count(connection: socket.socket) -> Any:
        client, _, _ = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        result = act_for(connection)
        if int(Path(f"/proc/{client}/stat").read_text().rpartition(") ")[2].split()[1]) == parent:
            with log.open("ab") as counts:
                counts.write(b".")
        return result

    served_command.peers.act_for = act_and_count
    server.run_server(path)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
