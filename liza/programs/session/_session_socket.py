"""The socket of a session: the shim answers commands and worker API requests from inside a box at it.

For each connection the shim forks a handler, which lives as long as the connection. The first byte says what comes:

- NUL: a command. The handler sends ``ready``. The client sends 4 bytes, the size of its request, then the request with
  its open standard streams: their numbers, how its output handles text that is not UTF-8, the number of words, the
  words and the variables, each ended by NUL. At the end the handler sends ``exit CODE`` or ``signal NUMBER``.
- else: HTTP. Its bytes are exchanged with the socket of the worker API. The handler is a process of the run, so the
  server takes the request for one of this run.

A command gets its words, its streams and the variables in ``names`` from the client; all else is the supervisor's. It
runs in the command server, or without one in a process of its own. The client's end closes the connection, which ends
the command.

As `_shim.py` this file may outlive the installation: it imports nothing later than the shim does.
"""
# pathlib would double the time that the shim takes to start.
# ruff: noqa: PTH108, PTH119, PTH120

from __future__ import annotations

import array
import contextlib
import ctypes
import os
import select
import signal
import socket
import struct
import time
from typing import Any, NamedTuple, NoReturn

from liza.system import command_socket, proc_stat

NAME = "session.sock"
MAX_HANDLERS = 64
"""Connections at a time; more of them wait in the queue of the socket."""
QUEUE = 512
REQUEST_LIMIT = 10
"""Seconds for a request to arrive whole. Then its handler is ended by SIGALRM."""
MAX_REQUEST = 4 << 20
"""Bytes of a request: more than the kernel allows for the words and variables of a process."""
EXIT_MISSING = 5
"""Exit code of a command whose repository has gone or was moved."""
CHUNK = 1 << 16
DEATH_SIGNAL = 1


class SessionCommand(NamedTuple):
    """A command of a client. ``streams`` maps the numbers of its open standard streams to descriptors here."""

    words: list[bytes]
    variables: dict[bytes, bytes]
    streams: dict[int, int]
    errors: bytes


class SessionSocket:
    """The listening socket in the run directory, which is the working directory, and its handlers."""

    def __init__(self, verbs: dict[str, Any]) -> None:
        """``verbs`` is what `session_process.py` returns."""
        self._verbs = verbs
        self._handlers: set[int] = set()
        self._umask = os.umask(0o177)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(NAME)
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(NAME)
        finally:
            os.umask(self._umask)
        self._listener.listen(QUEUE)
        self._listener.setblocking(False)

    def waiting_descriptors(self) -> list[int]:
        """Return the descriptor to wait at for the next connection; none while all handlers are busy."""
        return [self._listener.fileno()] if len(self._handlers) < MAX_HANDLERS else []

    def accept(self) -> None:
        """Fork a handler for the next connection. Raises nothing."""
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:
            time.sleep(0.05)  # No descriptor is free, and no event tells when one is: poll(2) returns at once.
            return
        shim = os.getpid()
        with connection, contextlib.suppress(OSError):
            pid = os.fork()
            if pid == 0:
                self._handle(connection, shim)
            self._handlers.add(pid)

    def forget(self, pid: int) -> None:
        """Forget a handler that has ended."""
        self._handlers.discard(pid)

    def close(self) -> None:
        """Accept no more connections, and end the handlers: the program has ended."""
        self._listener.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(NAME)
        for pid in self._handlers:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def _handle(self, connection: socket.socket, shim: int) -> NoReturn:
        """Be the handler of one connection. What goes wrong here ends this connection only."""
        try:
            self._become_handler()
            # The box of another crew may show the file of this socket: a read-only mount does not stop a connection.
            if descends_from(read_peer(connection), shim):
                self._answer(connection)
        finally:
            os._exit(0)

    def _answer(self, connection: socket.socket) -> None:
        signal.alarm(REQUEST_LIMIT)
        first = connection.recv(1, socket.MSG_PEEK)
        if first == b"\0":
            self._run_command(connection)
        elif first:
            signal.alarm(0)  # The server of the worker API has limits of its own.
            exchange_bytes(connection, connect_near(self._verbs["api"]))

    def _become_handler(self) -> None:
        signal.set_wakeup_fd(-1)
        self._listener.close()
        os.setsid()
        die_with_parent()
        # The shim's own handlers and ignored signals; SIGPIPE and SIGXFSZ stay ignored, as in every Python process.
        kept = {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}
        for number in signal.valid_signals() - kept:
            signal.signal(number, signal.SIG_DFL)
        os.umask(self._umask)

    def _run_command(self, connection: socket.socket) -> None:
        connection.recv(1)
        connection.sendall(b"ready")
        request = receive_request(connection)
        signal.alarm(0)
        if not change_directory(self._verbs["root"], request.streams):
            connection.sendall(b"exit %d" % EXIT_MISSING)
            return
        variables = [name + b"=" + value for name, value in self._environment(request).items()]
        server = command_socket.connect(os.fsencode(self._verbs["server"]))
        installation = os.fsencode(self._verbs["installation"])
        if server is not None and command_socket.begin_command(
            server, installation, request.streams, request.errors, request.words, variables
        ):
            if is_client_there(connection, server.fileno()):
                connection.sendall(server.recv(32))
        else:
            self._run_directly(connection, request)

    def _environment(self, request: SessionCommand) -> dict[bytes, bytes]:
        names = [os.fsencode(name) for name in self._verbs["names"]]
        own = {os.fsencode(name): os.fsencode(value) for name, value in self._verbs["env"].items()}
        taken = {name: value for name, value in request.variables.items() if name in names and not is_path(value)}
        return {**{name: value for name, value in own.items() if name not in names}, **taken}

    def _run_directly(self, connection: socket.socket, request: SessionCommand) -> None:
        """Run a command in a process of its own, and report its end."""
        pid = os.fork()
        if pid == 0:
            self._become_command(request)
        process = os.pidfd_open(pid)
        if is_client_there(connection, process):
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            connection.sendall(b"exit %d" % code if code >= 0 else b"signal %d" % -code)
        else:
            os.kill(pid, signal.SIGKILL)

    def _become_command(self, request: SessionCommand) -> NoReturn:
        try:
            die_with_parent()
            for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(ignored, signal.SIG_DFL)
            for stream in range(3):
                os.close(stream)
            # Their numbers are above 2, which were open when they were received.
            for number, descriptor in request.streams.items():
                os.dup2(descriptor, number, inheritable=True)
            argv = [os.fsencode(word) for word in self._verbs["argv"]]
            os.execve(argv[0], [*argv, *request.words[1:]], self._environment(request))
        except OSError as error:
            os.write(2, f"liza: {self._verbs['argv'][0]}: {error.strerror}\n".encode(errors="replace"))
        finally:
            os._exit(127)


def receive_request(connection: socket.socket) -> SessionCommand:
    """Receive a whole request. Raises OSError, ValueError."""
    data, ancillary, flags, _ = connection.recvmsg(CHUNK, socket.CMSG_SPACE(3 * 4))
    if flags & socket.MSG_CTRUNC:
        raise ValueError("more than 3 descriptors")
    descriptors = array.array("i")
    for _, _, rights in ancillary:
        descriptors.frombytes(rights)
    received = bytearray(data)
    while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
        if len(received) > 4 + MAX_REQUEST or not (chunk := connection.recv(CHUNK)):
            raise ValueError("the request is too large, or not whole")
        received += chunk
    numbers, errors, count, *rest = bytes(received[4:]).split(b"\0")
    if len(numbers) != len(descriptors) or not set(numbers) <= set(b"012"):
        raise ValueError("the streams are not those of a command")
    streams = {int(chr(number)): descriptor for number, descriptor in zip(numbers, descriptors, strict=True)}
    pairs = (variable.partition(b"=") for variable in rest[int(count) :])
    return SessionCommand([b"liza", *rest[1 : int(count)]], {name: value for name, _, value in pairs}, streams, errors)


def is_path(value: bytes) -> bool:
    """Return whether the C library may open a file that a value names: a pipe in ``TZ`` would never end, and a file of
    ``LANG`` is trusted."""
    return value.startswith((b"/", b":")) or b".." in value


def change_directory(path: str, streams: dict[int, int]) -> bool:
    """Change into the repository; return False, and tell the client, if that is gone."""
    try:
        os.chdir(path)
    except OSError as error:
        if 2 in streams:
            os.write(streams[2], f"liza: {path}: {error.strerror}\n  next: liza status\n".encode(errors="replace"))
        return False
    return True


def is_client_there(client: socket.socket, ready: int) -> bool:
    """Wait until ``ready`` is readable, and return True; return False if the client goes away before."""
    poll = select.poll()
    poll.register(client, 0)  # 0: only the end of the connection
    poll.register(ready, select.POLLIN)
    return any(descriptor == ready for descriptor, _ in poll.poll())


def connect_near(path: str) -> socket.socket:
    """Return a connection to a Unix socket. Raises OSError.

    The name is relative to its directory: an address has at most 107 bytes.
    """
    os.chdir(os.path.dirname(path))
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.path.basename(path))
    return connection


def exchange_bytes(left: socket.socket, right: socket.socket) -> None:
    """Copy what each side sends to the other until one of them ends. Raises OSError."""
    peers = {left: right, right: left}
    unsent = {left: b"", right: b""}
    is_over = False
    for end in peers:
        end.setblocking(False)
    while not is_over or any(unsent.values()):
        poll = select.poll()
        for end, peer in peers.items():
            events = (select.POLLOUT if unsent[end] else 0) | (0 if is_over or unsent[peer] else select.POLLIN)
            if events:  # Without any, poll(2) would report an end that has gone again and again.
                poll.register(end, events)
        ready = [descriptor for descriptor, _ in poll.poll()]
        for end, peer in peers.items():
            if end.fileno() in ready:
                if unsent[end]:
                    unsent[end] = unsent[end][end.send(unsent[end]) :]
                elif not unsent[peer]:
                    unsent[peer] = end.recv(CHUNK)
                    is_over = is_over or not unsent[peer]


def die_with_parent() -> None:
    """Let SIGKILL end this process when its parent ends. The parent is another process already if it has ended."""
    ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def read_peer(connection: socket.socket) -> int:
    """Return the pid of the process that connected, as it is seen here."""
    pid, _, _ = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(pid)


def descends_from(pid: int, ancestor: int) -> bool:
    """Return whether a process is a descendant of another one; False if one on the way has ended.

    An orphan in a box becomes a child of the first process of the box, which descends from the shim.
    """
    while pid > 1 and pid != ancestor:
        fields = proc_stat.read_stat(pid)
        if fields is None:
            return False
        pid = int(fields[proc_stat.PARENT])
    return pid == ancestor
