"""Who is at the other end of a connection: its process, and whether a person started it."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path
from typing import Final

from liza.rules.model import ProcessIdentity
from liza.rules.value_classes import Value
from liza.server.problems import RequestProblem
from liza.system import ancestors, processes, socket_tables
from liza.system.socket_tables import TcpEnds

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
    opened = socket_tables.find_client_socket(ends)
    if opened is not None and opened.uid != os.getuid():
        raise _refused(f"the connection is of user {opened.uid}, and the server of user {os.getuid()}")
    pid = None if opened is None else socket_tables.find_holder(opened.inode)
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
        # At the start of the connection: after the end of the peer another process may get its pid.
        self._process = processes.identify_process(peer.pid) if peer is not None and peer.pid > 0 else None
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
            self._found = (self._find_run(root),)
        return self._found[0]

    def _find_run(self, root: Path) -> str | None:
        peer, process = self._peer, self._process
        if self._ends is not None:
            peer = find_tcp_peer(self._ends)
            process = processes.identify_process(peer.pid)
        if peer is None:
            return None
        run = find_run(peer, root)
        # A process of a session could connect, pass the socket on and end: nothing shows its session any more. The
        # process is looked up again afterwards, so that it existed while its ancestors were read.
        if peer.pid > 0 and not _is_running(peer.pid, process):
            raise _refused("the process that connected has ended, so its session is not known")
        return run

    def is_outside_sessions(self, root: Path) -> bool:
        """Return whether neither the peer nor an ancestor of it belongs to a session of the crew.

        False if its process cannot be read: it is in another pid namespace, or has ended. False over TCP.
        """
        if self._peer is None or self._process is None:
            return False
        environments = list(ancestors.process_environments(self._peer.pid))
        if not environments or not _is_running(self._peer.pid, self._process):
            return False
        return not any(environ.get("LIZA_RUN") and environ.get("LIZA_ROOT") == str(root) for environ in environments)


def _is_running(pid: int, process: ProcessIdentity | None) -> bool:
    """Whether ``pid`` is still that of the process."""
    return process is not None and processes.identify_process(pid) == process


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
