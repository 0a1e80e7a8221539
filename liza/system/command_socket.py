"""The command server as its clients see it: where its socket is, and how a command is handed over.

Clients are `client.py`, and the shim of a session for the commands from inside a box. This module imports nothing else
of Liza, because the start of the interpreter and these imports are the greater part of a short command.
"""

from __future__ import annotations

import _socket
import os
import posix
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from liza import __version__
from liza.model.errors import LizaError, Missing, Refused
from liza.model.value_classes import Value
from liza.system import peers, processes

ANSWER_LIMIT = 5.0
"""Seconds to wait until the command has begun. A stopped or overloaded server is slower than a direct run."""
READ_AT_IMPORT = (b"PYTHON", b"GIT_PYTHON_", b"RUAMEL_", b"TYPER_", b"_TYPER_")
"""Beginnings of the names of variables that are read before a command runs."""


def find_socket(environ: dict[bytes, bytes]) -> bytes:
    """Return the path of the socket of this user's server for this installation; empty if none may be used.

    ``LIZA_COMMAND_SERVER`` names another socket; ``0`` means none. The interpreter and three libraries read variables
    when they start or are imported. With one of these the command runs directly, and such a process starts no server.
    """
    given = environ.get(b"LIZA_COMMAND_SERVER", b"")
    if given == b"0" or any(name.startswith(READ_AT_IMPORT) for name in environ):
        return b""
    home = environ.get(b"HOME", b"")
    state = environ.get(b"XDG_RUNTIME_DIR") or environ.get(b"XDG_STATE_HOME") or (home and home + b"/.local/state")
    # A digest without hashlib. The server compares the whole text: a collision costs a direct run.
    key = int.from_bytes(identify_installation(), "big") % (2**61 - 1)
    return given or (state and state + b"/liza/commands-%x" % key)


def identify_installation() -> bytes:
    """Return what a command and its server must have in common: the environment of Python, and Liza's version."""
    return f"{sys.prefix} {__version__}".encode(errors="surrogateescape")


def is_private(path: bytes, kind: int) -> bool:
    """Return whether ``path`` is of this kind of ``st_mode``, no link, and no other user may use it. Raises OSError."""
    status = posix.lstat(path)
    return status.st_uid == posix.geteuid() and status.st_mode & 0o170077 == kind


def connect(path: bytes) -> _socket.socket | None:
    """Return a connection to the server at ``path``; None without a server that can be trusted with this command."""
    try:
        if path and is_private(path, 0o140000) and is_private(path.rpartition(b"/")[0], 0o040000):
            connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
            connection.connect(path)
            return connection
    except OSError:
        pass
    return None


def begin_command(
    connection: _socket.socket,
    installation: bytes,
    streams: dict[int, int],
    errors: bytes,
    words: list[bytes],
    variables: list[bytes],
) -> int:
    """Send a command. Return the pid of its process; 0 if the server has not begun it, and will not.

    ``streams`` maps the numbers of its open standard streams to descriptors here. ``errors`` is how its output handles
    text that is not UTF-8.
    """
    head = [installation, b"%d" % len(words), bytes(48 + number for number in streams), errors]
    rights = b"".join(descriptor.to_bytes(4, sys.byteorder) for descriptor in streams.values())
    connection.settimeout(ANSWER_LIMIT)
    answer = b""
    try:
        # A stopped server would keep the streams open: they are sent to a process that runs.
        if connection.recv(32) != b"ready":
            return 0
        # One packet. If it is larger than the socket's buffer, as with a huge environment, the command runs directly.
        connection.sendmsg(
            [b"\0".join([*head, *words, *variables])], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)]
        )
        answer = connection.recv(32)
    except TimeoutError:
        # From here on the server cannot say that it begins: then it does not begin. It may have said so just now.
        connection.shutdown(_socket.SHUT_RDWR)
        answer = connection.recv(32)
    except OSError:
        pass
    connection.settimeout(None)
    return int(answer) if answer.isdigit() else 0


_STARTING: Final = ("up", "start", "liza-agent")
"""Commands that start the server wherever they are typed: many others follow them."""
_PADDING: Final = " " * 400
"""An argument and a variable of the server. A forked command shows its own in this place, which cannot grow."""
_STOP_LIMIT = 10.0  # seconds


class ServerState(Value):
    """``pid`` of the running server, or ``why`` none is used. ``can_start``: none runs, and one can be started.

    ``socket`` is empty if none may be used.
    """

    socket: str
    pid: int | None = None
    why: str = ""
    can_start: bool = False

    def describe(self) -> str:
        """Return in one sentence how commands are run."""
        if self.pid is not None:
            return f"process {self.pid} runs commands, at {self.socket}"
        return f"each command runs by itself: {self.why}" + (f" ({self.socket})" if self.socket else "")


def find_server() -> ServerState:
    """Return the server that a command with this environment would use."""
    path = os.fsdecode(find_socket(dict(os.environb)))
    if sys.platform != "linux":
        return ServerState("", why="it needs Linux")
    if not path:
        return ServerState("", why=_name_reason())
    with suppress(FileNotFoundError):
        for part, kind in ((Path(path).parent, stat.S_IFDIR), (Path(path), stat.S_IFSOCK)):
            if not is_private(os.fsencode(part), kind):
                return ServerState(path, why=f"{part} is a link, or another user may write to it")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(path)
            peer = peers.read_peer(connection)
    except OSError:
        return ServerState(path, why="no command server runs", can_start=True)
    return ServerState(path, None if peer is None else peer.pid)


def _name_reason() -> str:
    names = sorted(os.fsdecode(name) for name in os.environb if name.startswith(READ_AT_IMPORT))
    return f"{names[0]} is set" if names else "LIZA_COMMAND_SERVER is 0, or HOME is not set"


def offer(words: Sequence[str]) -> None:
    """Start the server if this command is one that starts it, and none runs. Raises nothing.

    Never in a session, in a set-up command, or for root through sudo.
    """
    is_typed = sys.stdin is not None and sys.stdin.isatty() and sys.stdout is not None and sys.stdout.isatty()
    if words[:1] == ["command-server"] or not (is_typed or words[:1] in [[word] for word in _STARTING]):
        return
    if any(name in os.environ for name in ("LIZA_RUN", "LIZA_COMMAND_SERVER", "SUDO_UID")):
        return
    with suppress(OSError, LizaError):
        server = find_server()
        if server.can_start:
            _spawn(server.socket, subprocess.DEVNULL)


def start() -> ServerState:
    """Start the server and wait until it accepts commands. Raises Refused, Missing, OSError."""
    server = find_server()
    if server.pid is not None:
        return server
    if not server.can_start:
        raise Refused(f"the command server cannot be used: {server.why}", "liza command-server status")
    process = _spawn(server.socket, subprocess.PIPE)
    assert process.stdout is not None
    if process.stdout.readline() != b"ready\n":
        raise Missing(f"the command server did not start at {server.socket}", "liza doctor")
    return find_server()


def _spawn(path: str, output: int) -> subprocess.Popen[bytes]:
    Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "liza.cli.server", path, _PADDING],
        cwd="/",
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("LIZA_")},
            "LIZA_PADDING": _PADDING,
        },
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def stop() -> bool:
    """End the server; return whether one ran. It first waits for the commands that it runs. Raises OSError."""
    pid = find_server().pid
    if pid is None:
        return False
    process = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(process, signal.SIGTERM)
        processes.wait_readable(process, _STOP_LIMIT)
    finally:
        os.close(process)
    return True
