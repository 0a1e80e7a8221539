"""The process at the other end of a TCP connection on this machine, with real sockets."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from liza.server import tcp_peers
from liza.server.peers import Peer, PeerSession, find_tcp_peer
from liza.server.problems import RequestProblem
from liza.server.tcp_peers import TcpEnds
from liza.system.processes import identify_process

LAST_PID = Path("/proc/sys/kernel/ns_last_pid")


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
            opened = tcp_peers.find_client_socket(ends)
            assert opened == (str(os.fstat(client.fileno()).st_ino), os.getuid())
            assert find_tcp_peer(ends) == Peer(os.getpid(), os.getuid())
            client.close()
            with pytest.raises(RequestProblem, match="not in /proc"):
                find_tcp_peer(ends)


def test_a_connection_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener, socket.socket() as client:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        client.connect(listener.getsockname())
        ends = TcpEnds(client.getsockname(), listener.getsockname())
        uid = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: uid + 1)
        with pytest.raises(RequestProblem, match=f"user {uid}"):
            find_tcp_peer(ends)


def test_the_session_of_a_process_that_has_ended_is_not_known(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    with pytest.raises(RequestProblem, match="has ended"):
        PeerSession(Peer(pid, os.getuid())).find_run(tmp_path)


def sleeping_child() -> int:
    pid = os.fork()
    if pid == 0:
        signal.pause()
    return pid


def end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.mark.skipif(not os.access(LAST_PID, os.W_OK), reason="only root can choose a pid")
def test_a_process_that_got_the_pid_of_the_one_that_connected_does_not_speak_for_it(tmp_path: Path) -> None:
    first = sleeping_child()
    session, person = PeerSession(Peer(first, os.getuid())), PeerSession(Peer(first, os.getuid()))
    identity = identify_process(first)
    assert person.is_outside_sessions(tmp_path)
    end(first)
    for _ in range(200):  # another process may take the pid first, and the start of a process is known to 10 ms
        LAST_PID.write_text(str(first - 1))
        second = sleeping_child()
        if second == first and identify_process(second) != identity:
            break
        end(second)
    else:
        pytest.skip("the pid could not be had again")
    try:
        with pytest.raises(RequestProblem, match="has ended"):
            session.find_run(tmp_path)
        assert not person.is_outside_sessions(tmp_path)
    finally:
        end(second)
