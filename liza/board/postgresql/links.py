"""The connections of a process to the server of its board: each is used by one thread at a time, and by no child."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from liza.board.postgresql.connection import ServerConnection
from liza.model.errors import BoardUnavailable

ResultT = TypeVar("ResultT")

RETURN_LIMIT: Final = 30.0
"""Seconds for which a change waits for a server that is gone."""
_RETRY_SECONDS: Final = 0.2  # nothing says that a server is back


class Links:
    """Connections that are kept for later statements about ``crew``.

    A forked child leaves those of its parent alone: to close one would end the session that the parent has.
    """

    def __init__(self, connect: Callable[[], ServerConnection], crew: str) -> None:
        self.crew = crew
        self._connect = connect
        self._guard = threading.Lock()
        self._pid = os.getpid()
        self._idle: list[ServerConnection] = []
        self._of_parent: list[ServerConnection] = []
        """Referenced, so that nothing closes them."""
        self._held: dict[int, list[ServerConnection]] = {}
        """The connections with a transaction, by the thread that is in it."""

    def take(self) -> ServerConnection:
        """Return a connection that no other thread uses. Raises BoardServerRefused, BoardUnavailable."""
        with self._guard:
            if self._pid != os.getpid():
                self._of_parent += self._idle
                self._pid, self._idle, self._held = os.getpid(), [], {}
            if self._idle:
                return self._idle.pop()
        return self._connect()

    def give_back(self, connection: ServerConnection) -> None:
        """Keep a connection for the next use, unless it is lost. It is in no transaction."""
        if not connection.is_closed:
            with self._guard:
                self._idle.append(connection)

    def close(self) -> None:
        """Close the connections that are not in use."""
        with self._guard:
            idle, self._idle = self._idle if self._pid == os.getpid() else [], []
        for connection in idle:
            connection.close()

    @contextmanager
    def hold(self, connection: ServerConnection) -> Iterator[None]:
        """Let ``ask`` of this thread use a connection that is in a transaction."""
        held = self._held.setdefault(threading.get_ident(), [])
        held.append(connection)
        try:
            yield
        finally:
            held.pop()

    @property
    def is_in_transaction(self) -> bool:
        """Whether this thread is in a transaction."""
        return bool(self._held.get(threading.get_ident()))

    def ask(self, sql: str, **values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query about the crew; in a transaction of this thread, on its connection.

        Raises what ``use`` raises.
        """
        return self.use(lambda connection: connection.run_together([(sql, {"crew": self.crew, **values})])[0])

    def ask_much(self, sql: str, **values: object) -> list[tuple[Any, ...]]:
        """As ``ask``, for an answer that may be longer than a socket holds: in a transaction, on another connection.

        PostgreSQL ends the transaction of a client that was stopped when it is idle, and not while it sends.
        """
        return self._use_other(lambda connection: connection.run_together([(sql, {"crew": self.crew, **values})])[0])

    def use(self, action: Callable[[ServerConnection], ResultT]) -> ResultT:
        """Return the result of ``action`` with a connection. One that was lost since its last use is replaced.

        Raises BoardServerRefused, BoardUnavailable.
        """
        if self.is_in_transaction:
            return action(self._held[threading.get_ident()][-1])
        return self._use_other(action)

    def _use_other(self, action: Callable[[ServerConnection], ResultT]) -> ResultT:
        connection = self.take()
        try:
            return action(connection)
        except BoardUnavailable:
            if not connection.is_closed:
                raise
        finally:
            self.give_back(connection)
        self.close()  # The server has ended the others, too.
        connection = self.take()
        try:
            return action(connection)
        finally:
            self.give_back(connection)


def repeat(action: Callable[[], ResultT], is_lost: Callable[[], bool] = lambda: True) -> ResultT:
    """Return the result of ``action``; repeat it for RETURN_LIMIT seconds while the connection is lost.

    Raises BoardUnavailable.
    """
    end = time.monotonic() + RETURN_LIMIT
    while True:
        try:
            return action()
        except BoardUnavailable:
            if not is_lost() or time.monotonic() > end:
                raise
        time.sleep(_RETRY_SECONDS)  # no event tells that a server is back
