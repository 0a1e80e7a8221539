"""Who is at the other end of a connection: its process, and whether a person started it."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path
from typing import Final

from liza.rules.value_classes import Value
from liza.server import tcp_peers
from liza.server.problems import RequestProblem
from liza.server.tcp_peers import TcpEnds
from liza.system import ancestors, processes

_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred of the kernel: pid, uid, gid


class Peer(Value):
    """The process at the other end of a connection. ``pid`` is 0 if this process cannot see it."""

    pid: int
    uid: int


def read_peer(connection: socket.socket) -> Peer | None:
    """Return the peer of a Unix socket; None for another socket, or if the system does not tell. Raises OSError."""
    option = getattr(socket, "SO_PEERCRED", None)
    if connection.family != socket.AF_UNIX or option is None:
        return None
    pid, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return Peer(pid, uid)


def find_tcp_peer(ends: TcpEnds) -> Peer:
    """Return the peer of a TCP connection. Raises RequestProblem if it cannot be found, or is of another user.

    Fails closed: without the process a token digest that a session writes itself would speak for another run.
    """
    opened = tcp_peers.find_client_socket(ends)
    if opened is not None and opened.uid != os.getuid():
        raise _refused(f"the connection is of user {opened.uid}, and the server of user {os.getuid()}")
    pid = None if opened is None else tcp_peers.find_holder(opened.inode)
    if opened is None or pid is None:
        raise _refused("the process that calls over TCP is not in /proc: it has ended, or is in another container")
    return Peer(pid, opened.uid)


def _refused(detail: str) -> RequestProblem:
    return RequestProblem(403, "refused", detail, hint="use the Unix socket .liza/run/api.sock")


class PeerSession:
    """The run whose session the peer of one connection belongs to. It is looked up once: requests are frequent.

    To read the environments of its ancestors takes 0.2 ms, and waits if one of them holds its memory.
    """

    def __init__(self, peer: Peer | None, ends: TcpEnds | None = None) -> None:
        """``peer`` of a Unix socket; None if the system does not tell. ``ends`` of a TCP connection."""
        self._peer, self._ends = peer, ends
        self._found: tuple[str | None] | None = (None,) if peer is None and ends is None else None

    @property
    def is_known(self) -> bool:
        """Whether the next call needs no look at /proc."""
        return self._found is not None

    def find_run(self, root: Path) -> str | None:
        """Return the run; None outside of every session, or at a Unix socket whose peer is not known.

        Raises RequestProblem for a peer that has ended, or over TCP cannot be found. Call it in a thread.
        """
        if self._found is None:
            peer = self._peer if self._ends is None else find_tcp_peer(self._ends)
            self._found = (_find_session(peer, root) if peer is not None else None,)
        return self._found[0]


def _find_session(peer: Peer, root: Path) -> str | None:
    run = find_run(peer, root)
    # A process of a session could connect, pass the socket on and end: nothing shows its session any more. The pid is
    # looked up afterwards, so that it existed while its ancestors were read.
    if run is None and peer.pid > 0 and processes.identify_process(peer.pid) is None:
        raise _refused("the process that connected has ended, so its session is not known")
    return run


def is_same_user(peer: Peer) -> bool:
    return peer.uid == os.getuid()


def find_run(peer: Peer, root: Path) -> str | None:
    """Return the run of the crew whose session the peer belongs to; None outside of every session, or if it is unknown.

    The outermost ancestor counts, as for a command.
    """
    run = None
    for environ in ancestors.process_environments(peer.pid) if peer.pid > 0 else ():
        if environ.get("LIZA_RUN") and environ.get("LIZA_ROOT") == str(root):
            run = environ["LIZA_RUN"]
    return run


def is_outside_sessions(peer: Peer, root: Path) -> bool:
    """Return whether neither the peer nor an ancestor of it belongs to a session of the crew.

    False if its process cannot be read: it is in another pid namespace, or has ended.
    """
    if peer.pid <= 0 or processes.identify_process(peer.pid) is None:
        return False
    environments = list(ancestors.process_environments(peer.pid))
    if not environments:
        return False
    return not any(environ.get("LIZA_RUN") and environ.get("LIZA_ROOT") == str(root) for environ in environments)
