"""The process of the command server: forks for each command, and reports how commands end.

It opens no crew and reads no board. It has one thread and no open file beside its sockets, so that a forked command
inherits nothing.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sysconfig
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import liza
from liza.board import opening
from liza.cli import app
from liza.cli.server import served_command
from liza.git import git_start
from liza.system.locks import lock_path

IDLE_LIMIT = 15 * 60.0
"""Seconds without a command after which the server ends."""
_BACKLOG = 512


def run_server(path: Path) -> None:
    """Serve commands at the socket ``path`` until it is idle. Exit at once if another server is there.

    Writes ``ready`` when it accepts commands. Raises OSError.
    """
    app.load_all_commands()
    git_start.load_library()
    opening.load_server_store()
    files = InstalledFiles()
    os.umask(0o077)
    with lock_path(path.parent), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        with suppress(OSError):
            probe.connect(os.fspath(path))
            return
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(os.fspath(path))
        listener.listen(_BACKLOG)
    bound = path.stat()
    os.write(1, b"ready\n")
    try:
        CommandServer(listener, files).serve()
    finally:
        with lock_path(path.parent), suppress(FileNotFoundError):
            if os.path.samestat(path.stat(), bound):  # no other server has replaced it
                path.unlink()


class CommandServer:
    """Accepts commands at a listening socket until it is idle, or Liza's files have changed."""

    def __init__(self, listener: socket.socket, files: InstalledFiles) -> None:
        self._listener = listener
        self._poll = select.poll()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._files = files
        # Otherwise each collection in a forked command would write to all pages, and so copy them.
        gc.collect()
        gc.freeze()

    def serve(self) -> None:
        """Serve until the server is idle or outdated. Running commands are waited for."""
        awake, waker = socket.socketpair()
        for end in (awake, waker):
            end.setblocking(False)
        signal.set_wakeup_fd(waker.fileno())
        signal.signal(signal.SIGTERM, lambda *_: None)  # The byte at `awake` is what counts: poll(2) is not ended.
        self._watch(awake.fileno(), select.POLLIN, self._stop)
        self._watch(self._listener.fileno(), select.POLLIN, self._accept)
        while len(self._callbacks) > 1:
            events = self._poll.poll(IDLE_LIMIT * 1000)
            if not events and len(self._callbacks) == 2:
                self._stop()
            for descriptor, _ in events:
                self._callbacks.get(descriptor, _do_nothing)()

    def _watch(self, descriptor: int, events: int, callback: Callable[[], None]) -> None:
        self._poll.register(descriptor, events)
        self._callbacks[descriptor] = callback

    def _forget(self, descriptor: int) -> None:
        if self._callbacks.pop(descriptor, None):
            self._poll.unregister(descriptor)

    def _stop(self) -> None:
        """Accept no more commands. Those that wait at the socket run directly."""
        if self._listener.fileno() >= 0:
            self._forget(self._listener.fileno())
            self._listener.close()

    def _accept(self) -> None:
        """Fork a process for the next command. Without one the client reads the end of the connection."""
        with suppress(OSError):
            connection, _ = self._listener.accept()
            with connection:
                if self._files.have_changed():
                    self._stop()
                    return
                pid = os.fork()
                if pid == 0:
                    self._become_command(connection)
                self._await_end(pid, connection.detach())

    def _become_command(self, connection: socket.socket) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            for descriptor in [int(name) for name in os.listdir("/proc/self/fd")]:  # noqa: PTH208 - numbers
                if descriptor > 2 and descriptor != connection.fileno():
                    with suppress(OSError):  # the descriptor of the list itself
                        os.close(descriptor)
            served_command.run(connection)
        finally:
            os._exit(1)

    def _await_end(self, pid: int, connection: int) -> None:
        process = os.pidfd_open(pid)

        def kill() -> None:
            self._forget(connection)
            os.kill(pid, signal.SIGKILL)

        def report() -> None:
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            self._forget(process)
            self._forget(connection)
            os.close(process)
            # The process of the command is gone, so its locks are free when the client ends.
            with suppress(OSError), socket.socket(fileno=connection) as client:
                client.send(b"exit %d" % code if code >= 0 else b"signal %d" % -code)

        self._watch(process, select.POLLIN, report)
        self._watch(connection, 0, kill)  # 0: only the end of the connection, which means that the client was killed.


def _do_nothing() -> None:
    """The callback of a descriptor that an earlier event of the same round has closed."""


class InstalledFiles:
    """The files of the running Liza, as they were when this process imported them."""

    def __init__(self) -> None:
        package = Path(liza.__file__).parent
        files = [path for path in (package, *package.rglob("*")) if "__pycache__" not in path.parts]
        # The directory of the environment's packages changes when one of them is installed in another version.
        self._paths = [os.fspath(path) for path in (*files, Path(sysconfig.get_path("purelib")))]
        self._facts = self._read()

    def have_changed(self) -> bool:
        """Return whether a file or a directory has changed, or has gone."""
        return self._read() != self._facts

    def _read(self) -> list[tuple[int, int, int]]:
        return [_read_facts(path) for path in self._paths]


def _read_facts(path: str) -> tuple[int, int, int]:
    try:
        status = os.stat(path)  # noqa: PTH116 - 700 files before each command
    except OSError:
        return (0, 0, 0)
    return (status.st_ino, status.st_size, status.st_mtime_ns)
