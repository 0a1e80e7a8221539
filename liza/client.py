"""``liza``: hand the typed command to the command server; without one, and on any doubt, run it here.

`command_server/__init__.py` describes the server. This module imports nothing else of Liza, because the start of the
interpreter and these imports are the greater part of a short command.
"""

import _signal  # type: ignore[import-not-found]  # `signal` imports enum: 5 ms
import _socket
import posix
import sys

from liza import __version__

ANSWER_LIMIT = 5.0
"""Seconds to wait until the command has begun. A stopped or overloaded server is slower than a direct run."""
EXIT_KILLED = 137
"""Exit code of a command that was killed together with the server: 128 + SIGKILL, as a shell reports it."""
READ_AT_IMPORT = (b"PYTHON", b"GIT_PYTHON_", b"RUAMEL_", b"TYPER_", b"_TYPER_")
"""Beginnings of the names of variables that are read before a command runs."""
_TO_GROUP = (_signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT)
"""Signals that a terminal sends to all processes of its foreground group."""


def main() -> int:
    """Run ``liza`` with the arguments of this process; return its exit code."""
    connection = _connect() if sys.platform == "linux" else None
    pid = _begin_command(connection) if connection else 0
    if connection and pid:
        return _wait_for_end(connection, pid)
    if connection:
        connection.close()
    from liza.cli.entry_points import liza  # A served command must not wait for this import.

    return liza()


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


def _connect() -> "_socket.socket | None":
    """Return a connection to the server; None without a server that can be trusted with this command."""
    path = find_socket(posix.environ)
    is_utf8 = sys.getfilesystemencoding() == "utf-8" and all(
        stream is None or stream.encoding == "utf-8" for stream in (sys.stdin, sys.stdout, sys.stderr)
    )
    try:
        if path and is_utf8 and is_private(path, 0o140000) and is_private(path.rpartition(b"/")[0], 0o040000):
            connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
            connection.connect(path)
            return connection
    except OSError:
        pass
    return None


def _begin_command(connection: _socket.socket) -> int:
    """Send the command. Return the pid of its process; 0 if the server has not begun it, and will not."""
    # Where a stream is closed, the connection itself has its number.
    streams = [number for number in range(3) if number != connection.fileno() and _is_open(number)]
    words = [word.encode(errors="surrogateescape") for word in sys.argv]
    variables = [name + b"=" + value for name, value in posix.environ.items()]
    errors = "strict" if sys.stdout is None else sys.stdout.errors or "strict"
    head = [identify_installation(), b"%d" % len(words), bytes(48 + number for number in streams), errors.encode()]
    rights = b"".join(number.to_bytes(4, sys.byteorder) for number in streams)
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
    return int(answer) if answer.isdigit() else 0


def _is_open(number: int) -> bool:
    try:
        posix.fstat(number)
    except OSError:
        return False
    return True


def _wait_for_end(connection: _socket.socket, pid: int) -> int:
    """Forward signals to the command until it ends; return its exit code. End by the signal that it ended by."""

    def forward(number: int, _: object) -> None:
        try:  # noqa: SIM105 - contextlib is slow to import
            (posix.killpg if number in _TO_GROUP else posix.kill)(pid, number)
        except ProcessLookupError:  # It has ended just now.
            pass

    def suspend(_: int, __: object) -> None:
        forward(_signal.SIGSTOP, None)
        posix.kill(posix.getpid(), _signal.SIGSTOP)
        forward(_signal.SIGCONT, None)

    for number in (*_TO_GROUP, _signal.SIGTERM):
        if _signal.getsignal(number) is not _signal.SIG_IGN:
            _signal.signal(number, forward)
    if _signal.getsignal(_signal.SIGTSTP) is not _signal.SIG_IGN:
        _signal.signal(_signal.SIGTSTP, suspend)
    connection.settimeout(None)
    try:
        kind, _, value = connection.recv(32).partition(b" ")
    except OSError:
        kind = b""
    if kind == b"exit":
        return int(value)
    if kind == b"signal":
        if int(value) not in (_signal.SIGKILL, _signal.SIGSTOP):
            _signal.signal(int(value), _signal.SIG_DFL)
        posix.kill(posix.getpid(), int(value))
    return EXIT_KILLED
