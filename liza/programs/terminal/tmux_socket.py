"""The socket of the crew's own tmux server, and whether that server answers there."""

from __future__ import annotations

import hashlib
import os
import socket
import struct
from pathlib import Path

from liza.model.errors import Refused
from liza.system import proc_stat

CONNECT_LIMIT = 5.0  # seconds; the kernel accepts a connection even if the server is busy
_CREDENTIALS = struct.Struct("iII")  # struct ucred of unix(7): pid, user, group


class TmuxNotAnswering(Refused):
    """A server accepts calls and does not answer them. Exit code 1."""


class TmuxServerGone(Refused):
    """The server has exited. Exit code 1."""


def server_name(root: Path) -> str:
    """Return the name of the crew's own server, for ``tmux -L``."""
    return f"liza-{hashlib.sha256(os.fsencode(root)).hexdigest()[:12]}"


def is_server_listening(address: str, server: int) -> bool:
    """Return whether this process listens at a socket; if the system does not tell which process, whether any does.

    Raises TmuxNotAnswering if the server's queue of connections is full.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(CONNECT_LIMIT)
            connection.connect(address)
            return not hasattr(socket, "SO_PEERCRED") or _peer_pid(connection) == server
    except (BlockingIOError, TimeoutError) as error:
        raise TmuxNotAnswering("the tmux server accepts no connections", f"tmux -S {address} ls") from error
    except OSError:
        return False


def is_server_stopped(server: int) -> bool:
    """Return whether a server is stopped (SIGSTOP or traced), so that a call to it does not return."""
    try:
        fields = proc_stat.read_stat(server)
    except OSError:
        return False
    return fields is not None and fields[proc_stat.STATE] in (b"T", b"t")


def _peer_pid(line: socket.socket) -> int:
    data = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(data)[0])


def remove_socket(address: str) -> None:
    """Remove the socket file that the crew's server left behind, if no process listens there. Raises OSError."""
    if not _has_listener(address):
        Path(address).unlink(missing_ok=True)


def _has_listener(address: str) -> bool:
    """Return whether a process listens there, or may listen."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(CONNECT_LIMIT)
        try:
            connection.connect(address)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
    return True
