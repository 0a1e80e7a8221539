"""The process at the other end of a TCP connection on this machine, with real sockets."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from liza.model.errors import Refused
from liza.system import peers
from liza.system.peers import Peer, PeerSession, TcpEnds, find_tcp_peer


@pytest.fixture(params=["127.0.0.1", "::ffff:127.0.0.1"])
def client(request: pytest.FixtureRequest) -> socket.socket:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    try:
        return socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        pytest.skip("no IPv6")


def test_the_process_of_a_connection_is_found_while_it_is_open(client: socket.socket) -> None:
    with socket.socket() as listener, client:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        host = "::ffff:127.0.0.1" if client.family == socket.AF_INET6 else "127.0.0.1"
        client.connect((host, listener.getsockname()[1]))
        server, _ = listener.accept()
        with server:
            ends = TcpEnds(server.getpeername(), server.getsockname())
            opened = peers.find_client_socket(ends)
            assert opened == (str(os.fstat(client.fileno()).st_ino), os.getuid())
            assert find_tcp_peer(ends) == Peer(os.getpid(), os.getuid())
            client.close()
            with pytest.raises(Refused, match="not in /proc"):
                find_tcp_peer(ends)


def test_a_connection_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener, socket.socket() as client:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        client.connect(listener.getsockname())
        ends = TcpEnds(client.getsockname(), listener.getsockname())
        uid = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: uid + 1)
        with pytest.raises(Refused, match=f"user {uid}"):
            find_tcp_peer(ends)


def test_the_session_of_a_process_that_has_ended_is_not_known(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    with pytest.raises(Refused, match="has ended"):
        PeerSession(Peer(pid, os.getuid())).find_run(tmp_path)
