"""The forked process of one command: takes over what the client has, and runs the command.

Protocol, one packet each: the process sends ``ready``, and the client its request with its descriptors. The process
answers with its pid, or with ``direct``: then nothing has happened, and the client runs the command itself. When it has
ended, the server sends ``exit CODE`` or ``signal NUMBER``.
"""

from __future__ import annotations

import array
import atexit
import io
import os
import resource
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, NoReturn

from liza.cli import app, entry_points
from liza.commands._declare import Process
from liza.system import command_socket, peers, proc_stat

MAX_REQUEST = 1 << 22
"""Bytes of a request. The kernel's limit, the size of a socket's buffer, is lower on most systems."""
READY, DIRECT = b"ready", b"direct"
_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]


class Request(NamedTuple):
    """A command as the client has it. ``streams`` maps the numbers of its open standard streams to descriptors here.

    ``words`` are its arguments with the program's name; ``errors`` is how its output handles text that is not UTF-8.
    """

    words: list[bytes]
    variables: list[bytes]
    streams: dict[int, int]
    errors: str


class NotServed(Exception):
    """The command must run directly."""


def run(connection: socket.socket) -> NoReturn:
    """Run the command of a client in this forked process, and exit."""
    server = os.getppid()
    try:
        connection.send(READY)
        request = _receive(connection)
        _require_served(request)
        peer = peers.read_peer(connection)
        if peer is None:
            raise NotServed
        _take_over(request, peer.pid)
        peers.act_for(connection)
        connection.send(b"%d" % os.getpid())
    except BaseException:  # noqa: BLE001 - nothing was changed outside this process: the client runs the command
        with suppress(OSError):
            connection.send(DIRECT)
        os._exit(0)
    code = entry_points.EXIT_INTERRUPTED
    try:
        code = entry_points.run_liza()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    finally:
        _clean_up()
        if os.getppid() != server:  # The server was killed: no other process can report the end.
            with suppress(OSError):
                connection.send(b"exit %d" % code)
        os._exit(code)


def _receive(connection: socket.socket) -> Request:
    """Receive the request. Raises NotServed, OSError, ValueError."""
    data, ancillary, flags, _ = connection.recvmsg(MAX_REQUEST, socket.CMSG_SPACE(3 * 4))
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        raise NotServed
    descriptors = array.array("i")
    for _, _, rights in ancillary:
        descriptors.frombytes(rights)
    installation, count, numbers, errors, *rest = data.split(b"\0")
    if installation != command_socket.identify_installation() or len(numbers) != len(descriptors):
        raise NotServed
    streams = {int(chr(number)): descriptor for number, descriptor in zip(numbers, descriptors, strict=True)}
    return Request(rest[: int(count)], rest[int(count) :], streams, errors.decode())


def _require_served(request: Request) -> None:
    """Raise NotServed if the command must own the terminal, or supervises processes."""
    process = app.find_process([os.fsdecode(word) for word in request.words[1:]])
    is_at_terminal = any(os.isatty(request.streams[number]) for number in (0, 1) if number in request.streams)
    if process is Process.DIRECT or (process is Process.DIRECT_AT_TERMINAL and is_at_terminal):
        raise NotServed


def _take_over(request: Request, pid: int) -> None:
    """Make this process like the client. Raises OSError, ValueError if it cannot be made so."""
    os.setpgid(0, 0)
    status = peers.read_status(pid)
    os.umask(int(status["Umask"], 8))
    _take_over_signals(status)
    directory = os.open(f"/proc/{pid}/cwd", os.O_PATH | os.O_DIRECTORY)
    os.fchdir(directory)
    os.close(directory)
    os.environb.clear()
    os.environb.update(dict(variable.split(b"=", 1) for variable in request.variables))
    time.tzset()
    sys.argv = [os.fsdecode(word) for word in request.words]
    _take_over_streams(request)
    Path("/proc/self/comm").write_bytes(b"liza")
    proc_stat.show_command([sys.executable, *sys.argv])
    for limit in _LIMITS:
        with suppress(ValueError):  # This kernel does not have it.
            resource.setrlimit(limit, resource.prlimit(pid, limit))


def _take_over_signals(status: dict[str, str]) -> None:
    """Handle all signals as the interpreter of the client does, which handles only SIGINT, and block the same ones."""
    ignored = int(status["SigIgn"], 16)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if ignored >> (number - 1) & 1 else usual)
    blocked = int(status["SigBlk"], 16)
    signal.pthread_sigmask(signal.SIG_SETMASK, {n for n in signal.valid_signals() if blocked >> (n - 1) & 1})


def _take_over_streams(request: Request) -> None:
    for number in range(3):
        os.close(number)
    for number, descriptor in request.streams.items():
        os.dup2(descriptor, number, inheritable=True)
    for descriptor in request.streams.values():
        os.close(descriptor)
    sys.stdin = _open_stream(request, 0, request.errors)
    sys.stdout = _open_stream(request, 1, request.errors)
    sys.stderr = _open_stream(request, 2, "backslashreplace")


def _open_stream(request: Request, number: int, errors: str) -> io.TextIOWrapper | None:
    """Return a standard stream as the interpreter opens it at its start; None if the client has closed it."""
    if number not in request.streams:
        return None
    binary = os.fdopen(number, "wb" if number else "rb", closefd=False)
    is_line_buffered = number == 2 or (number == 1 and os.isatty(number))
    return io.TextIOWrapper(binary, "utf-8", errors, line_buffering=is_line_buffered)


def _clean_up() -> None:
    """Do what the interpreter does before it ends: wait for threads, call `atexit` functions, flush."""
    with suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            if stream is not None:
                stream.flush()
