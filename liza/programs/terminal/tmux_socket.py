"""Check that a socket belongs to the crew's own tmux server, and which process listens there.

Agents can write the file that names the socket. So the path is checked before each use: Liza connects to no other
socket, and removes none.
"""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import struct
from pathlib import Path

from liza.rules.errors import Refused
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


def is_crew_socket(root: Path, address: str) -> bool:
    """Return whether a path is a socket of the crew's server.

    It must have that server's name, belong to this user, and be in a directory of this user with the name and mode that
    tmux gives it. The parent of that directory may be any: the crew may have been started with another ``TMUX_TMPDIR``.
    """
    path = Path(address)
    if not path.is_absolute() or (path.name, path.parent.name) != (server_name(root), f"tmux-{os.getuid()}"):
        return False
    try:
        socket_status, directory_status = path.lstat(), path.parent.lstat()
    except (OSError, ValueError):
        # ValueError: the path contains a null character.
        return False
    mine = socket_status.st_uid == directory_status.st_uid == os.getuid() and not directory_status.st_mode & (
        stat.S_IWGRP | stat.S_IWOTH
    )
    return mine and stat.S_ISSOCK(socket_status.st_mode) and stat.S_ISDIR(directory_status.st_mode)


def is_server_listening(address: str, server: int) -> bool:
    """Return whether this process listens at a socket; if the system does not tell which process, whether any does.

    Raises TmuxNotAnswering if the server's queue of connections is full.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(CONNECT_LIMIT)
            connection.connect(address)
            return not hasattr(socket, "SO_PEERCRED") or _peer_credentials(connection) == (server, os.getuid())
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


def _peer_credentials(line: socket.socket) -> tuple[int, int]:
    """Return the pid and the user of the process at the other end."""
    data = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(data)[:2]


def remove_socket(root: Path, address: str) -> None:
    """Remove the socket file that the crew's server left behind, if no process listens there. Raises OSError."""
    if is_crew_socket(root, address) and not _has_listener(address):
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
