"""Find the process at the other end of a TCP connection on this machine, with /proc.

The kernel tells the peer of a Unix socket. For TCP it lists the socket of the peer with its inode, and each process its
open sockets. One search takes some milliseconds, so it is done once for each connection.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")
_LOCAL, _REMOTE, _UID, _INODE = 1, 2, 7, 9  # columns of the tables
_MAPPED_PREFIX: Final = "0000000000000000" + f"{int.from_bytes(bytes((0, 0, 255, 255)), sys.byteorder):08X}"
"""An IPv4 address in the table of IPv6: a client may reach 127.0.0.1 with a socket of IPv6."""
Address = tuple[str, int]


class TcpEnds(NamedTuple):
    """The two addresses of an IPv4 connection: of the client, and of the server."""

    client: Address
    server: Address


class SocketOwner(NamedTuple):
    """The socket of a client: its inode, and the user who opened it."""

    inode: str
    uid: int


def find_client_socket(ends: TcpEnds) -> SocketOwner | None:
    """Return the client's socket of a connection; None if it is closed, not in this network namespace, or without
    /proc."""
    client, server = _format_address(ends.client), _format_address(ends.server)
    for table, prefix in zip(TABLES, ("", _MAPPED_PREFIX), strict=True):
        with suppress(OSError), open(table, encoding="ascii") as rows:  # noqa: PTH123 - a row at a time
            for row in rows:
                if prefix + client in row:
                    columns = row.split()
                    if columns[_LOCAL] == prefix + client and columns[_REMOTE] == prefix + server:
                        # A socket that no process has open any more has the inode 0.
                        return SocketOwner(columns[_INODE], int(columns[_UID])) if columns[_INODE] != "0" else None
    return None


def find_holder(inode: str) -> int | None:
    """Return the pid of a process that has the socket open; None if no process in sight has.

    Processes that share a socket are of one session, unless they pass it on on purpose.
    """
    target = f"socket:[{inode}]"
    # Highest pid first: a command that asks once is the newest process.
    return next((pid for pid in _pids() if _has_open(pid, target)), None)


def _pids() -> Iterator[int]:
    with suppress(OSError):
        yield from sorted((int(name) for name in os.listdir("/proc") if name.isdigit()), reverse=True)  # noqa: PTH208


def _has_open(pid: int, target: str) -> bool:
    # The process belongs to another user or has just ended.
    with suppress(OSError):
        for descriptor in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - thousands of names
            with suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{descriptor}") == target:  # noqa: PTH115 - as above
                    return True
    return False


def _format_address(address: Address) -> str:
    host, port = address
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"
