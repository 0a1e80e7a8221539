"""Which socket is the crew's own tmux server's, and who listens there: the file that names it can be written by agents.

So a name in it is worth no more than where it points to: Liza asks nobody else, and takes no other name away.
"""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import struct
from pathlib import Path

from liza.rules.errors import Refused

CONNECT_LIMIT = 5.0  # seconds; a server takes calls before it looks at them
_CREDENTIALS = struct.Struct("iII")  # struct ucred of unix(7): pid, user, group


class TmuxNotAnswering(Refused):
    """A server takes questions and answers none. Exit code 1."""


class TmuxServerGone(Refused):
    """The server is not there any more. Exit code 1."""


def server_name(root: Path) -> str:
    """The name of the crew's own server, for ``tmux -L``."""
    return f"liza-{hashlib.sha256(os.fsencode(root)).hexdigest()[:12]}"


def is_crew_socket(root: Path, address: str) -> bool:
    """Whether a path is that of a socket of the crew's server: its name, this user's, in a directory of this user's as
    tmux makes them. Above that it may be anywhere: who started the crew may have had another ``TMUX_TMPDIR``."""
    path = Path(address)
    if not path.is_absolute() or (path.name, path.parent.name) != (server_name(root), f"tmux-{os.getuid()}"):
        return False
    try:
        there, above = path.lstat(), path.parent.lstat()
    except (OSError, ValueError):
        # ValueError: it holds what no name of a file can.
        return False
    mine = there.st_uid == above.st_uid == os.getuid() and not above.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return mine and stat.S_ISSOCK(there.st_mode) and stat.S_ISDIR(above.st_mode)


def is_server_listening(address: str, server: int) -> bool:
    """Whether it is this process that listens at a socket. Where the system does not tell: whether anybody does.

    Raises Silent where more wait to be heard than the system lets wait.
    """
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(CONNECT_LIMIT)
            line.connect(address)
            return not hasattr(socket, "SO_PEERCRED") or _peer_credentials(line) == (server, os.getuid())
    except (BlockingIOError, TimeoutError) as error:
        raise TmuxNotAnswering("the tmux server hears nobody", f"tmux -S {address} ls") from error
    except OSError:
        return False


def _peer_credentials(line: socket.socket) -> tuple[int, int]:
    """The pid and the user of whoever listens at the other end."""
    said = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(said)[:2]


def remove_socket(root: Path, address: str) -> None:
    """Take away the name that the crew's server left behind, where nobody listens. Raises OSError."""
    if is_crew_socket(root, address) and not _has_listener(address):
        Path(address).unlink(missing_ok=True)


def _has_listener(address: str) -> bool:
    """Whether anybody listens, or may."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(CONNECT_LIMIT)
        try:
            line.connect(address)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
    return True
