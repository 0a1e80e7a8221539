"""Who is at the other end of a connection: its process, the run whose session it is in, and how to act for it."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from liza.model.errors import Refused
from liza.model.model import ProcessIdentity
from liza.model.value_classes import Value
from liza.system import ancestors, proc_stat, processes

_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred of the kernel: pid, uid, gid
_PEER_PIDFD: Final = 77  # SO_PEERPIDFD of the kernel's asm-generic/socket.h, since Linux 6.5
_VIEWS: Final = ("ns/pid", "ns/mnt", "ns/user", "ns/net", "root")
_RIGHTS: Final = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp")
_DIRECTLY: Final = "export LIZA_COMMAND_SERVER=0"


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


def is_same_user(peer: Peer) -> bool:
    return peer.uid == os.getuid()


def _refused(detail: str) -> Refused:
    return Refused(detail, "ls -l .liza/run/api.sock")


class PeerSession:
    """The run whose session the peer of one connection belongs to. It is looked up once: requests are frequent.

    To read the environments of its ancestors takes 0.2 ms, and waits if one of them holds its memory.
    """

    def __init__(self, peer: Peer | None) -> None:
        """``peer`` of a Unix socket; None over TCP, or if the system does not tell."""
        self._peer = peer
        # At the start of the connection: after the end of the peer another process may get its pid.
        self._process = processes.identify_process(peer.pid) if peer is not None and peer.pid > 0 else None
        self._found: tuple[str | None] | None = (None,) if peer is None else None

    @property
    def is_known(self) -> bool:
        """Whether the next call needs no look at /proc."""
        return self._found is not None

    def find_run(self, root: Path) -> str | None:
        """Return the run, of the outermost ancestor; None outside of every session, or if the peer is not known.

        Raises Refused for a peer that has ended. Call it in a thread.
        """
        if self._found is None:
            self._found = (self._find_run(root),)
        return self._found[0]

    def _find_run(self, root: Path) -> str | None:
        peer, process = self._peer, self._process
        if peer is None or peer.pid <= 0:
            return None
        run = ancestors.find_outermost_run(root, ancestors.process_environments(peer.pid))
        # A process of a session could connect, pass the socket on and end: nothing shows its session any more. The
        # process is looked up again afterwards, so that it existed while its ancestors were read.
        if not _is_running(peer.pid, process):
            raise _refused("the process that connected has ended, so its session is not known")
        return run

    def is_outside_sessions(self, root: Path) -> bool:
        """Return whether neither the peer nor an ancestor of it belongs to a session of the crew.

        False if its process cannot be read: it is in another pid namespace, or has ended. False over TCP, and for a
        process in the box of another crew, which may show the file of the socket.
        """
        if self._peer is None or self._process is None:
            return False
        environments = list(ancestors.process_environments(self._peer.pid))
        if not environments or not _has_own_users(self._peer.pid) or not _is_running(self._peer.pid, self._process):
            return False
        return ancestors.find_outermost_run(root, environments) is None


def _has_own_users(pid: int) -> bool:
    """Return whether a process is in the user namespace of this one: a process in a box is not."""
    try:
        return _is_same_view(pid, "ns/user")
    except OSError:
        return not os.path.exists("/proc/self/ns/user")  # noqa: PTH110 - without /proc there is no box


def _is_running(pid: int, process: ProcessIdentity | None) -> bool:
    """Whether ``pid`` is still that of the process."""
    return process is not None and processes.identify_process(pid) == process


def act_for(connection: socket.socket) -> None:
    """Let this process, a child of the command server, act for the process at the other end of a Unix socket.

    Call it once, after the environment of the command is set: the processes that the command starts get variables with
    the sessions of the peer, which is none of their ancestors. /proc shows the environment as that of this process, so
    that it is found and killed with the processes of a run. Raises Refused if the peer has ended, is of another user,
    has other rights, another root or pid, mount, user or network namespace, or hides its environment.
    """
    try:
        peer = read_peer(connection)
        if peer is None or peer.pid <= 0 or not is_same_user(peer):
            raise Refused("the process that called is of another user, or in another pid namespace", _DIRECTLY)
        handle = _open_pidfd(connection, peer.pid)
        try:
            _require_same_rights(peer.pid)
            ancestors.act_for_process(peer.pid)
            proc_stat.show_environment(os.environ)
            # The pid is that of the peer only as long as it lives: it lived while its ancestors were read.
            if processes.wait_readable(handle, 0):
                raise Refused("the process that called has ended, so its session is not known", _DIRECTLY)
        finally:
            os.close(handle)
    except OSError as error:
        raise Refused(f"the process that called has ended, or cannot be read: {error.strerror}", _DIRECTLY) from error


def _open_pidfd(connection: socket.socket, pid: int) -> int:
    """Return a pidfd of the peer. Raises OSError, also if it has ended.

    Before Linux 6.5 a process that got its pid since it connected is not told from it.
    """
    try:
        return connection.getsockopt(socket.SOL_SOCKET, _PEER_PIDFD)
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:
            raise
    return os.pidfd_open(pid)


def _require_same_rights(pid: int) -> None:
    """Raise Refused if a process has other rights or another view of the system than this one. Raises OSError."""
    for name in _VIEWS:
        if not _is_same_view(pid, name):
            raise Refused(f"the process that called has another {name.removeprefix('ns/')} namespace", _DIRECTLY)
    caller, own = read_status(pid), read_status(os.getpid())
    for name in _RIGHTS:
        if caller.get(name) != own.get(name):
            raise Refused(f"the process that called has other rights ({name})", _DIRECTLY)


def _is_same_view(pid: int, name: str) -> bool:
    """Return whether a process and this one have the same namespace, or root directory. Raises OSError."""
    return os.path.samestat(os.stat(f"/proc/{pid}/{name}"), os.stat(f"/proc/self/{name}"))  # noqa: PTH116


def read_status(pid: int) -> dict[str, str]:
    """Return the lines of ``/proc/<pid>/status`` by their names. Raises OSError."""
    lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")
_LOCAL, _REMOTE, _STATE, _UID, _INODE = 1, 2, 3, 7, 9  # columns of the tables
_ESTABLISHED, _LISTEN = "01", "0A"  # TCP_ESTABLISHED and TCP_LISTEN of the kernel's net/tcp_states.h
_UNIX_TABLE: Final = "/proc/net/unix"
_ACCEPTS: Final = 0x10000  # __SO_ACCEPTCON of the kernel's linux/net.h, in the flags of a Unix socket
_PORT_RANGE: Final = "/proc/sys/net/ipv4/ip_local_port_range"
_SOCKET: Final = "socket:["


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


Address = tuple[str, int]
"""An address of IPv4 and a port."""
_CLOSED: Final = "0"  # inode of a socket that no process has open any more
_MAPPED: Final = b"\0" * 10 + b"\xff" * 2
"""What precedes an address of IPv4 in a socket of IPv6 (RFC 4291)."""


class TcpPeerSession:
    """The run whose session has the other end of a TCP connection on this machine open. It is looked up once.

    A socket may be open in several processes: one of them in a session is enough. A process in a box is seen, too. To
    look takes 13 ms with 110 processes, and 25 ms with 410 that have 14,000 open files: 9 ms are two reads of the
    kernel's table.
    """

    def __init__(self, client: Address, server: Address) -> None:
        """``client``: the address of the other end. ``server``: the address of this end."""
        self._client, self._server = client, server
        self._run: tuple[str | None] | None = None

    @property
    def is_known(self) -> bool:
        """Whether the next call needs no look at /proc."""
        return self._run is not None

    def find_run(self, root: Path) -> str | None:
        """Return the run, of the outermost ancestor; None outside of every session, or if no process is seen.

        Not seen are processes of other users, such as the daemon of a tunnel, and those that hide their files, such as
        sshd; without /proc, none is seen. Raises Refused if the other end is closed. Call it in a thread.
        """
        if self._run is None:
            self._run = (self._find_run(root),)
        return self._run[0]

    def _find_run(self, root: Path) -> str | None:
        inode = self._find_inode()
        if inode is None:
            return None
        for pid in _list_pids_near_sessions(root):
            if inode in iter_sockets(pid):
                run = ancestors.find_outermost_run(root, ancestors.process_environments(pid))
                if run is not None:
                    return run
        # A process that ended before the look at its files was not seen: then its socket is closed now.
        self._find_inode()
        return None

    def _find_inode(self) -> str | None:
        """Return the inode of the other end; None if the kernel does not list it. Raises Refused if it is closed."""
        table = _read_table(TABLES[0])
        if not table:
            return None
        row = _find_row(table, self._client, self._server)
        row = row or _find_row(_read_table(TABLES[1]), self._client, self._server, prefix=_MAPPED)
        if row is None:
            own_row = _find_row(table, self._server, self._client)
            if own_row is not None and own_row[_STATE] == _ESTABLISHED:
                return None  # the other end is on another machine
        if row is None or row[_INODE] == _CLOSED:
            raise Refused(
                "the process that connected has closed the connection, so its session is not known", "liza web"
            )
        return row[_INODE]


def _list_pids_near_sessions(root: Path) -> set[int]:
    """Return the pids whose environment, or that of an ancestor, has a variable of Liza and the root of a crew.

    All processes in sessions of the crew are among them. The open files of the others need not be read: a browser has
    hundreds.
    """
    pending: list[int] = []
    children: defaultdict[int, list[int]] = defaultdict(list)
    for pid in list_pids():
        with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - as above
            block = file.read()
            if b"LIZA_" in block and os.fsencode(root) in block:
                pending.append(pid)
        children[processes.parent_pid(pid) or 0].append(pid)
    pids: set[int] = set()
    while pending:
        pid = pending.pop()
        if pid not in pids:
            pids.add(pid)
            pending += children[pid]
    return pids


def _read_table(path: str) -> str:
    """Return a table of the TCP connections of this network namespace; empty without /proc."""
    with suppress(OSError), open(path, encoding="ascii") as rows:  # noqa: PTH123
        return rows.read()
    return ""


def _find_row(table: str, local: Address, remote: Address, prefix: bytes = b"") -> list[str] | None:
    """Return the columns of the connection with these addresses; None if there is none."""
    addresses = f": {_format_address(local, prefix)} {_format_address(remote, prefix)} "
    index = table.find(addresses)
    return None if index < 0 else table[table.rfind("\n", 0, index) + 1 : table.find("\n", index)].split()


def _format_address(address: Address, prefix: bytes) -> str:
    """Return an address as the table has it: words of four bytes in the byte order of this machine."""
    host, port = address
    packed = prefix + socket.inet_aton(host)
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
