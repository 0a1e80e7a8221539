"""A proxy before a PostgreSQL that cuts a connection at a chosen point, as a network does."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from pathlib import Path

_SIZE = 1 << 16


class Cut(Enum):
    """Where a connection is cut: what the client sent when, and what arrived."""

    CONNECT = b""
    """Nothing arrives."""
    LOCK = b"FOR NO KEY UPDATE"
    """The lock is taken, and the client does not hear it."""
    WRITE = b"INSERT INTO journal"
    """Neither the rows nor the commit arrive."""
    COMMIT = b"INSERT INTO journal "
    """Rows and commit arrive, and nobody waits for the answer."""
    ANSWER = b"INSERT INTO journal  "
    """The commit is made, and its answer is lost."""


class CuttingProxy:
    """Passes on connections of a Unix socket. It cuts one when ``cut`` is due, and calls ``on_cut`` then."""

    def __init__(self, directory: Path, target: Path) -> None:
        self.directory = directory
        self._target = str(target)
        self.cut: Cut | None = None
        self.on_cut: Callable[[], object] = lambda: None
        self.cuts = 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(directory / target.name))
        self._listener.listen(64)
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """Accept no more connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._pass_on, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _pass_on(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        with client, server, suppress(OSError), selectors.DefaultSelector() as selector:
            if self._take(Cut.CONNECT):
                return None
            server.connect(self._target)
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            is_answer_lost = False
            while True:
                for key, _ in selector.select():
                    source, target = key.fileobj, key.data
                    assert isinstance(source, socket.socket)
                    data = source.recv(_SIZE)
                    if not data or (is_answer_lost and source is server):
                        return self._end(server, is_answer_lost)
                    due = self._find_due(data) if source is client else None
                    if due is not Cut.WRITE:
                        target.sendall(data)
                    if due in (Cut.WRITE, Cut.COMMIT):
                        return self._end(server, True)
                    is_answer_lost |= due is not None

    def _find_due(self, data: bytes) -> Cut | None:
        cut = self.cut
        return cut if cut and cut.value.strip() in data and self._take(cut) else None

    def _take(self, cut: Cut) -> bool:
        """Return whether ``cut`` is due; then it is made once."""
        if self.cut is not cut:
            return False
        self.cut = None
        return True

    def _end(self, server: socket.socket, is_cut: bool) -> None:
        server.close()
        if is_cut:
            self.cuts += 1
            self.on_cut()
