"""``liza``: hand the typed command to the command server; without one, and on any doubt, run it here.

`cli/server/__init__.py` describes the server. In the box of a session the command goes to the session's socket, and
never runs here; also without a box, if the board is in PostgreSQL: a session has no way to the database. This module
imports almost nothing else of Liza, because the start of the interpreter and these imports are the greater part of a
short command.
"""

import _signal  # type: ignore[import-not-found]  # `signal` imports enum: 5 ms
import _socket
import posix
import sys
import time

from liza.system import command_socket

SOCKET_LIMIT = 10.0
"""Seconds to wait for the socket of the session: that of a lock."""
EXIT_KILLED = 137
"""Exit code of a command that was killed together with the server: 128 + SIGKILL, as a shell reports it."""
SESSION_SOCKET = b"LIZA_SESSION_SOCKET"
"""Names the socket of a session without a box. In a box, LIZA_COMMAND_SERVER does."""
_MAX_SOCKET_PATH = 107  # bytes, of the kernel
_BETWEEN_TRIES = 0.1  # seconds
_TO_GROUP = (_signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT)
"""Signals that a terminal sends to all processes of its foreground group."""


def main() -> int:
    """Run ``liza`` with the arguments of this process; return its exit code."""
    if posix.environ.get(b"LIZA_CONFINED") == b"yes":
        return _lock_in_box() if sys.argv[1:2] == ["lock"] else _run_outside_box()
    if SESSION_SOCKET in posix.environ:
        return _run_outside_box()
    connection = _connect() if sys.platform == "linux" else None
    pid = _begin_command(connection) if connection else 0
    if connection and pid:
        return _wait_for_end(connection, pid)
    if connection:
        connection.close()
    from liza.cli.entry_points import liza  # A served command must not wait for this import.

    return liza()


def _connect() -> "_socket.socket | None":
    """Return a connection to the server; None without a server that can be trusted with this command."""
    is_utf8 = sys.getfilesystemencoding() == "utf-8" and all(
        stream is None or stream.encoding == "utf-8" for stream in (sys.stdin, sys.stdout, sys.stderr)
    )
    return command_socket.connect(command_socket.find_socket(posix.environ)) if is_utf8 else None


def _begin_command(connection: _socket.socket) -> int:
    """Send the command. Return the pid of its process; 0 if the server has not begun it, and will not."""
    streams = _open_streams(connection)
    return command_socket.begin_command(
        connection, command_socket.identify_installation(), streams, _output_errors(), _words(), _variables()
    )


def _open_streams(connection: _socket.socket) -> dict[int, int]:
    # Where a stream is closed, the connection itself has its number.
    return {number: number for number in range(3) if number != connection.fileno() and _is_open(number)}


def _words() -> list[bytes]:
    return [word.encode(errors="surrogateescape") for word in sys.argv]


def _variables() -> list[bytes]:
    return [name + b"=" + value for name, value in posix.environ.items()]


def _output_errors() -> bytes:
    return ("strict" if sys.stdout is None else sys.stdout.errors or "strict").encode()


def _is_open(number: int) -> bool:
    try:
        posix.fstat(number)
    except OSError:
        return False
    return True


def _lock_in_box() -> int:
    from liza.cli.boxed_lock import lock_in_box  # No other command runs here.
    from liza.cli.entry_points import run_reporting_errors

    return run_reporting_errors(lock_in_box, sys.argv[1:], "liza")


def _run_outside_box() -> int:
    """Hand the command to the socket of the session; return its exit code. `_session_socket.py` is the other side.

    The command ends with this process, whose death closes the connection: no signal is forwarded.
    """
    connection = _connect_to_session()
    if connection is None:
        return _report_no_socket()
    if _signal.getsignal(_signal.SIGINT) is not _signal.SIG_IGN:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    streams, words, variables = _open_streams(connection), _words(), _variables()
    head = [bytes(48 + number for number in streams), _output_errors(), b"%d" % len(words)]
    request = b"\0".join([*head, *words, *variables])
    rights = b"".join(number.to_bytes(4, sys.byteorder) for number in streams)
    data = len(request).to_bytes(4, "big") + request
    end = b""
    try:
        sent = connection.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
        connection.sendall(data[sent:])
        while part := connection.recv(32):
            end += part
    except OSError:
        pass
    return _end_like(end)


def _connect_to_session() -> "_socket.socket | None":
    """Return a connection whose other end has answered; None after the limit."""
    path = posix.environ.get(SESSION_SOCKET) or posix.environ.get(b"LIZA_COMMAND_SERVER", b"")
    if len(path) > _MAX_SOCKET_PATH:
        directory, _, name = path.rpartition(b"/")
        path = b"/proc/self/fd/%d/%s" % (posix.open(directory, posix.O_PATH | posix.O_CLOEXEC), name)
    end = time.monotonic() + SOCKET_LIMIT
    while (left := end - time.monotonic()) > 0:
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            connection.settimeout(left)
            connection.connect(path)
            connection.sendall(b"\0")
            # A stopped shim would keep the streams open: they are sent to a process that runs.
            if connection.recv(5) == b"ready":
                connection.settimeout(None)
                return connection
        except OSError:
            pass
        connection.close()
        time.sleep(_BETWEEN_TRIES)  # no event tells that a process listens at the socket again
    return None


def _report_no_socket() -> int:
    from liza.model.errors import LockTimeout
    from liza.printing.error_output import print_error

    text = f"the socket of this session did not answer within {SOCKET_LIMIT:.0f} s, so the command did not run"
    return print_error("liza", LockTimeout(text, "liza status"), "--json" in sys.argv)


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
    try:
        return _end_like(connection.recv(32))
    except OSError:
        return EXIT_KILLED


def _end_like(answer: bytes) -> int:
    """Return the exit code in ``exit CODE``. End this process by the signal in ``signal NUMBER``."""
    kind, _, value = answer.partition(b" ")
    if kind == b"exit":
        return int(value)
    if kind == b"signal":
        if int(value) not in (_signal.SIGKILL, _signal.SIGSTOP):
            _signal.signal(int(value), _signal.SIG_DFL)
        posix.kill(posix.getpid(), int(value))
    return EXIT_KILLED
