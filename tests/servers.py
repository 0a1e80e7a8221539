"""Servers of a test: real processes that listen, each ended by the test."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

SERVE = """\
import os, socket, sys
address = sys.argv[1] if len(sys.argv) > 1 else ""
if address[:1] == "/":
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
else:
    host, _, port = address.rpartition("@")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, int(port)))
listener.listen()
if sys.argv[2:] == ["fork"] and os.fork() == 0:
    os.read(0, 1)
    os._exit(0)
print(listener.getsockname()[1] if address[:1] != "/" else address, flush=True)
os.read(0, 1)
"""
"""A server at HOST@PORT or at a path: it prints its address when it listens, and ends with its input."""


def choose_port() -> int:
    """A free port that neither the kernel gives out nor a slot has."""
    while True:
        port = random.randrange(10_000, 20_000)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def copy_python(to: Path) -> Path:
    """The interpreter as another program, for ``start`` with ``-c``."""
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(os.path.realpath(sys.executable), to)
    return to


class Servers:
    """Starts servers, and ends what is left of them."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, cwd: Path, *words: str | Path, **env: str) -> subprocess.Popen[str]:
        """A process whose first line of output says that it listens."""
        server = subprocess.Popen(
            list(map(str, words)),
            cwd=cwd,
            env={**os.environ, "PYTHONHOME": sys.base_prefix, "PYTHONUNBUFFERED": "1", **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._processes.append(server)
        assert server.stdout is not None
        assert server.stdout.readline(), f"{words} does not listen"
        return server

    def end(self, server: subprocess.Popen[str]) -> None:
        server.kill()
        server.communicate()

    def end_all(self) -> None:
        for server in self._processes:
            self.end(server)


@pytest.fixture
def servers() -> Iterator[Servers]:
    running = Servers()
    try:
        yield running
    finally:
        running.end_all()
