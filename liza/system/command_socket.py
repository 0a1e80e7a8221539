"""The command server as its clients see it: where its socket is, and how a command is handed over.

Clients are `client.py`, and the shim of a session for the commands from inside a box. This module imports nothing else
of Liza, because the start of the interpreter and these imports are the greater part of a short command.
"""

import _socket
import posix
import sys

from liza import __version__

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


def connect(path: bytes) -> "_socket.socket | None":
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
