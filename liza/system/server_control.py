"""Start, find and stop the command server of this user and this installation."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from liza.model.errors import LizaError, Missing, Refused
from liza.model.value_classes import Value
from liza.system import command_socket, peers, processes

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
    path = os.fsdecode(command_socket.find_socket(dict(os.environb)))
    if sys.platform != "linux":
        return ServerState("", why="it needs Linux")
    if not path:
        return ServerState("", why=_name_reason())
    with suppress(FileNotFoundError):
        for part, kind in ((Path(path).parent, stat.S_IFDIR), (Path(path), stat.S_IFSOCK)):
            if not command_socket.is_private(os.fsencode(part), kind):
                return ServerState(path, why=f"{part} is a link, or another user may write to it")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(path)
            peer = peers.read_peer(connection)
    except OSError:
        return ServerState(path, why="no command server runs", can_start=True)
    return ServerState(path, None if peer is None else peer.pid)


def _name_reason() -> str:
    names = sorted(os.fsdecode(name) for name in os.environb if name.startswith(command_socket.READ_AT_IMPORT))
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
