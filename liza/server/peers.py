"""Who is at the other end of a connection: its process, and whether a person started it."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path
from typing import Final

from liza.rules.value_classes import Value
from liza.system import ancestors, processes

_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred of the kernel: pid, uid, gid


class Peer(Value):
    """The process that opened a connection over the Unix socket. ``pid`` is 0 if this process cannot see it."""

    pid: int
    uid: int


def read_peer(connection: socket.socket) -> Peer | None:
    """Return the peer of a Unix socket; None for another socket, or if the system does not tell. Raises OSError."""
    option = getattr(socket, "SO_PEERCRED", None)
    if connection.family != socket.AF_UNIX or option is None:
        return None
    pid, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return Peer(pid, uid)


class PeerSession:
    """The session that the peer of one connection belongs to. It is looked up once.

    To read the environments of its ancestors takes 0.2 ms, and waits if one of them holds its memory.
    """

    def __init__(self, peer: Peer | None) -> None:
        self._peer = peer
        self._run: str | None = None
        self.is_known = peer is None

    def find_run(self, root: Path) -> str | None:
        """As ``find_run`` for the peer; None without a peer."""
        if not self.is_known and self._peer is not None:
            self._run = find_run(self._peer, root)
            self.is_known = True
        return self._run


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
