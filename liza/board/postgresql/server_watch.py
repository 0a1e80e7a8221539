"""Watch a crew in PostgreSQL: notifications, and a look at its marks after each of them and every five seconds.

A notification is a hint, and is lost with its connection. The marks tell what has changed, so no change is missed.
While the process of this host runs, it alone has a connection that listens, and touches a file here after each change.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from liza.board.directory_watch import DirectoryWatch
from liza.board.events import BoardChanged, SignalChanged
from liza.board.postgresql.connection import ServerConnection
from liza.board.postgresql.signal_rows import LOOK_AGAIN_SECONDS, CrewMarks, channel, read_marks
from liza.model.errors import LizaError
from liza.model.paths import Paths
from liza.system import file_growth
from liza.system.locks import is_flock_held

LOOK_SECONDS: Final = 5.0
"""Seconds between two looks without a notification, or between two looks for the process of the host."""
_RETRY_SECONDS: Final = 1.0


class ServerWatch(DirectoryWatch):
    """The watches of one process: local files, and the crew by a connection of its own, in a thread."""

    def __init__(
        self, paths: Paths, extra_dirs: Iterable[Path], connect: Callable[[], ServerConnection], crew: str
    ) -> None:
        super().__init__(paths, extra_dirs, file_growth.wake_directory(paths) / file_growth.BOARD)
        self._connect = connect
        self._crew = crew
        self._seen: CrewMarks | None = None
        self._wake_reader, self._wake_writer = os.pipe()
        connection: ServerConnection | None = None
        with suppress(LizaError):  # A server that is gone is looked for by the thread.
            connection = self._listen()
            self._look(connection)
        self._thread = threading.Thread(target=self._run, args=(connection,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        super().close()
        if threading.current_thread() is not self._thread and self._thread.is_alive():
            os.write(self._wake_writer, b"x")
            self._thread.join()
            os.close(self._wake_reader)
            os.close(self._wake_writer)

    def _listen(self) -> ServerConnection:
        connection = self._connect()
        connection.listen(channel(self._crew))
        return connection

    def _run(self, connection: ServerConnection | None) -> None:
        is_notified = True  # perhaps shortly before this connection listened
        while not self._closed:
            try:
                connection = connection or self._listen()
                is_served = is_flock_held(self._paths.host_lock)
                is_busy = self._look(connection) or is_notified
                if is_served:  # The process of the host reports what comes after this look.
                    connection.close()
                    self._wait_while_served()
                    is_notified = True
                elif not (is_notified := connection.take_notifications() > 0):
                    self._wait(LOOK_AGAIN_SECONDS if is_busy else LOOK_SECONDS, connection)
                    is_notified = connection.take_notifications() > 0
            except LizaError:
                self._wait(_RETRY_SECONDS)
                is_notified = True
            if connection is not None and connection.is_closed:
                connection = None
        if connection is not None:
            connection.close()

    def _wait_while_served(self) -> None:
        while not self._closed and is_flock_held(self._paths.host_lock):
            self._wait(LOOK_SECONDS)

    def _wait(self, seconds: float, *others: ServerConnection) -> None:
        """Wait until one of ``others`` can be read, or until ``close``."""
        poll = select.poll()
        for descriptor in (self._wake_reader, *(connection.fileno() for connection in others)):
            poll.register(descriptor, select.POLLIN)
        poll.poll(seconds * 1000)

    def _look(self, connection: ServerConnection) -> bool:
        """Post what has changed since the last look; return whether it is anything."""
        seen, self._seen = self._seen, read_marks(connection, self._crew)
        if seen is None:
            return False
        if (seen.change, seen.hosts) != (self._seen.change, self._seen.hosts):
            self._post(BoardChanged())
        if seen.signals != self._seen.signals:
            self._post(SignalChanged())
        return seen != self._seen
