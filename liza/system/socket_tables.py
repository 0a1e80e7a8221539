"""Read the kernel's lists of sockets in /proc: the process at the other end of a TCP connection, and what listens.

The kernel tells the peer of a Unix socket. For TCP it lists the socket of the peer with its inode, and each process its
open sockets. One search takes some milliseconds, so it is done once for each connection.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")
_LOCAL, _REMOTE, _STATE, _UID, _INODE = 1, 2, 3, 7, 9  # columns of the tables
_LISTEN: Final = "0A"  # TCP_LISTEN of the kernel's net/tcp_states.h
_UNIX_TABLE: Final = "/proc/net/unix"
_ACCEPTS: Final = 0x10000  # __SO_ACCEPTCON of the kernel's linux/net.h, in the flags of a Unix socket
_PORT_RANGE: Final = "/proc/sys/net/ipv4/ip_local_port_range"
_SOCKET: Final = "socket:["
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
    # Highest pid first: a command that asks once is the newest process.
    return next((pid for pid in sorted(list_pids(), reverse=True) if inode in iter_sockets(pid)), None)


def list_pids() -> list[int]:
    """Return the pids of all processes in sight; none without /proc."""
    with suppress(OSError):
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    return []


def iter_sockets(pid: int) -> Iterator[str]:
    """Yield the inodes of the sockets that a process has open; none if it has ended or belongs to another user."""
    with suppress(OSError):
        for descriptor in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - thousands of names
            with suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{descriptor}")  # noqa: PTH115 - as above
                if target.startswith(_SOCKET):
                    yield target[len(_SOCKET) : -1]


def list_listening() -> dict[str, str]:
    """Return what listens in this network namespace, by inode: the port of a TCP socket at any address, or the path of
    a Unix socket, which begins with ``/``, or with ``@`` for an abstract name. Empty without /proc.

    Unix sockets with relative paths are left out: it is not known where they are.
    """
    listening = {}
    for table in TABLES:
        with suppress(OSError), open(table, encoding="ascii") as rows:  # noqa: PTH123 - as above
            for columns in map(str.split, rows):
                if columns[_STATE] == _LISTEN:
                    listening[columns[_INODE]] = str(int(columns[_LOCAL].rpartition(":")[2], 16))
    return {**listening, **list_unix_listening()}


def list_unix_listening() -> dict[str, str]:
    """As ``list_listening``, for Unix sockets: to read the tables of TCP takes ten times as long."""
    listening = {}
    # A path may have any bytes.
    with suppress(OSError), open(_UNIX_TABLE, encoding="utf-8", errors="surrogateescape", newline="\n") as rows:  # noqa: PTH123
        next(rows, "")
        for row in rows:
            # Num RefCount Protocol Flags Type St Inode Path
            columns = row.rstrip("\n").split(maxsplit=7)
            if len(columns) == 8 and columns[7][0] in "/@" and int(columns[3], 16) & _ACCEPTS:
                listening[columns[6]] = columns[7]
    return listening


def read_port_range() -> range:
    """Return the ports that the kernel gives out by itself, to a server that asks for port 0; none without /proc."""
    with suppress(OSError, ValueError), open(_PORT_RANGE) as file:  # noqa: PTH123
        first, last = map(int, file.read().split())
        return range(first, last + 1)
    return range(0)


def _format_address(address: Address) -> str:
    host, port = address
    number = int.from_bytes(bytes(map(int, host.split("."))), sys.byteorder)
    return f"{number:08X}:{port:04X}"
