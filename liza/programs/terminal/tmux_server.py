"""The crew's own tmux server: its socket, whether it answers there, and one call to it with a time limit."""

from __future__ import annotations

import hashlib
import os
import socket
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from liza.model.errors import Refused
from liza.system import proc_stat, program_path

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


CALL_LIMIT = 10.0  # seconds; a call takes some milliseconds
_VARIABLES = ("PATH", "LANG", "LC_ALL", "TMUX_TMPDIR")

_silent_until: dict[str, float] = {}
"""Servers that did not answer, and until when (monotonic clock) they are not called again."""


def call_tmux(*words: str, socket: Sequence[str], limit: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a tmux command. ``socket`` is the option that names the server.

    Raises TmuxNotAnswering after ``limit`` seconds (default CALL_LIMIT), or at once if the last call to this server
    timed out less than CALL_LIMIT seconds ago; Missing if there is no tmux.
    """
    client = ("tmux", *socket)
    hint = " ".join((*client[:3], "ls"))
    if time.monotonic() < _silent_until.get(hint, 0.0):
        raise TmuxNotAnswering("the tmux server has not answered an earlier call", hint)
    seconds = CALL_LIMIT if limit is None else limit
    try:
        # -u: the screen is UTF-8 in every locale. At the limit `run` kills the client and waits for its exit only: the
        # server may hold the other ends of its pipes.
        return subprocess.run(
            (program_path.find_program("tmux"), "-u", *socket, *words),
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        _silent_until[hint] = time.monotonic() + CALL_LIMIT
        raise TmuxNotAnswering(f"the tmux server did not answer within {seconds:.0f} s", hint) from error


def _environment() -> dict[str, str]:
    """Return the variables that tmux needs.

    A server that the call starts passes its environment to every shim, and agents can read it: it gets none of this
    process's variables that may be secret.
    """
    env = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    return env if env.get("LANG") or env.get("LC_ALL") else {**env, "LC_ALL": "C.UTF-8"}
