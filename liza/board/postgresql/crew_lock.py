"""The lock of a crew in PostgreSQL, and the commit of a change under it, also if the connection is lost meanwhile.

The lock is that of the crew's row. It is taken by a statement of its own, and what others committed is read by the
next one: in one statement, the rows would be those from before the wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final
from uuid import UUID

from liza.board.postgresql import board_copy, crew_statements
from liza.board.postgresql.board_copy import BoardCopy, CrewRow
from liza.board.postgresql.connection import RowConflict, ServerConnection
from liza.board.postgresql.crew_rows import missing_crew
from liza.board.postgresql.crew_statements import BEGIN, COMMIT, ROLLBACK, CrewChange, CrewStatement
from liza.board.postgresql.links import Links, ResultT, repeat
from liza.model.errors import BoardInconsistent, BoardUnavailable, HostFenced, Refused
from liza.system import crash_points
from liza.system.clock import boottime

IDLE_LIMIT: Final = 5.0
"""Seconds in a transaction without a statement after which the server ends it: this process was stopped."""
_CONFLICTS: Final = {
    "entry_owner": "an agent would own two tasks",
    "entry_slot": "two tasks would have one worktree",
    "entry_reserver": "a run would reserve two tasks",
    "entry_reviewer": "a run would review two tasks",
}


def catch_up(connection: ServerConnection, crew: str, before: BoardCopy | None) -> tuple[BoardCopy, datetime]:
    """Return the newest board, read in one statement, and the time of the server. Raises NoCrew."""
    [rows] = connection.run_together([crew_statements.read_newer(crew, before.numbers.change if before else 0)])
    if not rows:
        raise missing_crew(crew)
    delta = crew_statements.parse_delta(rows, 5)
    numbers, is_complete = CrewRow(*rows[0][:3]), rows[0][4]
    # If the database was set back to a backup, its numbers are those of other changes.
    if before is not None and (not is_complete or numbers.change < before.numbers.change):
        return catch_up(connection, crew, None)
    if before is not None and not delta and before.numbers == numbers:
        return before, rows[0][3]
    return board_copy.read_copy(crew, numbers, delta, before), rows[0][3]


class CrewLock:
    """The lock of a crew, held in a transaction of one connection."""

    def __init__(self, links: Links, host: tuple[str, UUID] | None, measure: Callable[[datetime], None]) -> None:
        """``host`` and its incarnation must have the lease. ``measure`` gets the time of the server."""
        self._links = links
        self._crew = links.crew
        self._host = host
        self._measure = measure
        self.connection: ServerConnection | None = None
        self.is_committed = False
        self.is_notification_due = True
        self._taken = 0.0  # of CLOCK_BOOTTIME
        self._is_late = False

    def take(self, copy: BoardCopy | None) -> BoardCopy:
        """Take the lock; return the board under it. A server that is gone is waited for.

        Raises LockTimeout, NoCrew, HostFenced, BoardUnavailable.
        """
        is_held = False
        while not is_held:
            copy, is_held = self._repeat(partial(self._try_take, copy))
        assert copy is not None
        return copy

    def _try_take(self, copy: BoardCopy | None) -> tuple[BoardCopy, bool]:
        """Take the lock if what is read under it is little; else only catch up. Return whether it is held."""
        connection = self._use_connection()
        if copy is None:
            copy, _ = catch_up(connection, self._crew, None)
        copy.parse()  # A whole board takes long to parse: not under the lock.
        seen = copy.numbers.change
        numbers, delta = self._begin([crew_statements.read_locked(self._crew, seen)])
        if not delta[0][1] or numbers.change < seen:
            connection.run_together([ROLLBACK])
            return catch_up(connection, self._crew, copy)[0], False
        self._taken = boottime()
        self._measure(delta[0][0])
        if numbers == copy.numbers:
            return copy, True
        return board_copy.read_copy(self._crew, numbers, crew_statements.parse_delta(delta, 2), copy), True

    def _begin(self, questions: Sequence[CrewStatement]) -> list[Any]:
        """Begin a transaction, take the lock and ask ``questions``. Return the crew's numbers and the answers."""
        lock = crew_statements.lock_crew(self._crew)
        statements = [BEGIN, *lock, *questions]
        if self._host is not None:
            statements.append(crew_statements.check_lease(self._crew, *self._host))
        results = self._use_connection().run_together(statements, patience=crew_statements.LOCK_LIMIT)
        locked, *answers = results[len(lock) :]
        crash_points.point("crew", "locked")
        if not locked:
            raise missing_crew(self._crew)
        if self._host is not None and not answers.pop():
            raise HostFenced(f"the lease of host {self._host[0]} is over: nothing was written", "liza host list")
        return [CrewRow(*locked[0]), *answers]

    def commit(self, change: CrewChange) -> None:
        """Write the change and commit it. If the connection is lost, find out whether it was written, and write it.

        Raises BoardInconsistent if the database refuses it, BoardUnavailable if nothing was written.
        """
        crash_points.point("crew", "write")
        self._is_late = boottime() - self._taken > IDLE_LIMIT
        try:
            self._write(change)
        except BoardUnavailable:
            if self.connection is not None and not self.connection.is_closed:
                raise
            self._repeat(partial(self._write_again, change))
        self.is_committed = True
        crash_points.point("crew", "committed")

    def _write(self, change: CrewChange) -> None:
        assert self.connection is not None
        try:
            *_, [(self.is_notification_due,)], _ = self.connection.run_together([*change.list_statements(), COMMIT])
        except RowConflict as conflict:
            reason = _CONFLICTS.get(conflict.constraint, f"the database refuses it: {conflict.message}")
            raise BoardInconsistent(f"{reason}; nothing was written", "liza validate") from None

    def _write_again(self, change: CrewChange) -> None:
        """Write a change of a lost connection, if it was not written and the board is as it was.

        The lock of the lost transaction is free only when that was committed or undone.
        """
        question, wanted = change.find_written()
        numbers, answer = self._begin([question])
        if answer[0][0] == wanted and numbers.change > change.base.change:
            return
        if self._is_late:
            why = f"this process stopped for more than {IDLE_LIMIT:g} s in a change, and PostgreSQL ended the change"
            raise BoardUnavailable(f"{why}; nothing was written", "liza status")
        if numbers != change.base:
            why = "the connection to PostgreSQL was lost in a change, and the board changed before it was back"
            raise BoardUnavailable(f"{why}; nothing was written", "liza status")
        self._write(change)

    @contextmanager
    def serve(self) -> Iterator[None]:
        """Let the queries of this thread use the connection of the lock."""
        assert self.connection is not None
        with self._links.hold(self.connection):
            yield

    def release(self) -> None:
        """End the transaction; what was not committed is undone."""
        connection, self.connection = self.connection, None
        if connection is not None:
            end_transaction(connection)
            self._links.give_back(connection)

    def _use_connection(self) -> ServerConnection:
        if self.connection is None or self.connection.is_closed:
            self.connection = self._links.take()
        return self.connection

    def _repeat(self, action: Callable[[], ResultT]) -> ResultT:
        """Return the result of ``action``; repeat it while the server is gone."""
        return repeat(action, lambda: self.connection is None or self.connection.is_closed)


def create_crew(links: Links, change: CrewChange) -> None:
    """Write the first board of a crew. Raises Refused if the database has the crew."""

    def create() -> None:
        connection = links.take()
        try:
            question, wanted = change.find_written()
            [inserted, [(number,)]] = connection.run_together(
                [BEGIN, crew_statements.insert_crew(change.crew), question]
            )[1:]
            if inserted:
                connection.run_together([*change.list_statements(), COMMIT])
            elif number != wanted:
                raise Refused(f"the database has a crew {change.crew} already", "liza status")
        finally:
            end_transaction(connection)
            links.give_back(connection)

    repeat(create)


def end_transaction(connection: ServerConnection) -> None:
    """Undo what was not committed."""
    try:
        if connection.is_in_transaction:
            connection.run_together([ROLLBACK])
    except BoardUnavailable:
        connection.close()
