"""Whose session is at the other end of a connection to 127.0.0.1: real processes, and real sockets."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from liza.box.box import Box, Mount, MountKind
from liza.model.errors import Refused
from liza.system.http_listener import open_loopback, port_of
from liza.system.peers import TcpPeerSession
from tests.conftest import LONG, until

ROOT = Path("/project")
IN_SESSION = {"LIZA_RUN": "coder-1.7", "LIZA_ROOT": str(ROOT)}
CONNECT = "import os, socket, struct, subprocess, sys; line = socket.create_connection((HOST, int(sys.argv[1]))); "
CONNECT_IPV4 = CONNECT.replace("HOST", "'127.0.0.1'")
WAIT = "sys.stdin.read()"
"""The client and its connection live until its input ends."""
PYTHON = (sys.executable, "-c")
CLIENT = (*PYTHON, CONNECT_IPV4 + WAIT)


def below(*words: str) -> tuple[str, ...]:
    """A process that starts ``words``, and waits for them."""
    return ("sh", "-c", '"$@"; true', "sh", *words)


class Client(NamedTuple):
    process: subprocess.Popen[bytes]
    connection: socket.socket
    """The end of the server."""
    session: TcpPeerSession


@contextmanager
def connected(*words: str, environ: Mapping[str, str] = {}) -> Iterator[Client]:
    """A client that ``words`` and a port start."""
    with open_loopback(0) as listener:
        listener.settimeout(LONG)
        words = (*words, str(port_of(listener)))
        with subprocess.Popen(words, env={"PATH": os.environ["PATH"], **environ}, stdin=subprocess.PIPE) as process:
            connection, address = listener.accept()
            with connection:
                yield Client(process, connection, TcpPeerSession(address, connection.getsockname()))
            assert process.stdin is not None
            process.stdin.close()


def find_run(*words: str, environ: Mapping[str, str] = {}) -> str | None:
    with connected(*words, environ=environ) as client:
        return client.session.find_run(ROOT)


def test_a_process_outside_every_session_is_outside() -> None:
    assert find_run(*CLIENT) is None
    assert find_run(*CLIENT, environ={**IN_SESSION, "LIZA_ROOT": "/other"}) is None, "of another crew"


CLIENTS = {
    "session": CLIENT,
    "grandchild": below(*below(*CLIENT)),
    "no variables": below("env", "-i", *CLIENT),
    "forged variables": below("env", "LIZA_RUN=planner-1.1", *CLIENT),
    "socket of IPv6": (*PYTHON, CONNECT.replace("HOST", "'::ffff:127.0.0.1'") + WAIT),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("words", CLIENTS.values(), ids=CLIENTS)
def test_a_process_below_a_session_belongs_to_it(words: tuple[str, ...]) -> None:
    assert find_run(*words, environ=IN_SESSION) == "coder-1.7"


def test_a_socket_that_a_session_inherited_belongs_to_it() -> None:
    """The process that connected is outside of the session, and keeps the socket."""
    start = f"child = subprocess.Popen(['cat'], stdin=subprocess.PIPE, close_fds=False, env={IN_SESSION!r}); "
    with connected(*PYTHON, CONNECT_IPV4 + "line.set_inheritable(True); " + start + WAIT) as client:
        children = Path(f"/proc/{client.process.pid}/task/{client.process.pid}/children")
        until(lambda: (child := children.read_text().strip()) and _runs(child, "cat"), "the session runs")
        assert client.session.find_run(ROOT) == "coder-1.7"


def _runs(pid: str, name: str) -> bool:
    return Path(f"/proc/{pid}/comm").read_text().strip() == name


@pytest.mark.needs("bwrap")
def test_a_process_in_the_box_of_a_session_belongs_to_it(tmp_path: Path) -> None:
    box = Box(
        shutil.which("bwrap") or "", (Mount(MountKind.READ_ONLY, tmp_path.parents[1]),), tmp_path
    )  # may be in /dev/shm
    words = box.wrap(below("env", "-i", *CLIENT))
    assert find_run(*words, environ=IN_SESSION) == "coder-1.7"
    assert find_run(*words) is None


ENDS = {
    "closed": "line.close(); ",
    "reset": "line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); line.close(); ",
    "killed": "os.kill(os.getpid(), 9); ",
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_connection_that_its_process_closed_is_refused(end: str) -> None:
    """The process may have been in a session."""
    with connected(*PYTHON, CONNECT_IPV4 + end + WAIT) as client:
        client.connection.settimeout(LONG)
        with suppress(ConnectionResetError):
            assert client.connection.recv(1) == b""
        with pytest.raises(Refused):
            client.session.find_run(ROOT)


def test_the_session_of_a_connection_is_looked_up_once() -> None:
    with connected(*CLIENT, environ=IN_SESSION) as client:
        assert not client.session.is_known
        assert client.session.find_run(ROOT) == "coder-1.7"
        client.process.kill()
        client.process.wait()
        assert client.session.is_known
        assert client.session.find_run(ROOT) == "coder-1.7"
