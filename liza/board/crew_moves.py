"""Move a whole crew from files into PostgreSQL, copy it out of there, and move it back.

Each move is one transaction. Only this module knows both stores, but for `opening.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import msgspec

from liza.board.address import BoardAddress
from liza.board.crew_copy import CrewCopy, find_difference
from liza.board.file_store import file_copy
from liza.board.postgresql import crew_rows, migrations
from liza.board.postgresql.connection import ServerConnection, connect, refuse_unreachable
from liza.board.postgresql.migrations import Migrated
from liza.model.errors import BoardInconsistent, Refused
from liza.model.paths import Paths


@contextmanager
def connected(address: BoardAddress) -> Iterator[ServerConnection]:
    """Use a connection to the server of a board for the block."""
    connection = connect(address)
    try:
        yield connection
    finally:
        connection.close()


def read_repository(address: BoardAddress) -> tuple[str, ...] | None:
    """Return the root commits of the repository of a crew; None if the database has no such crew.

    The address is new here: a server that cannot be reached is refused. Raises BoardServerRefused.
    """
    with refuse_unreachable(), connected(address) as connection:
        return crew_rows.read_repository(connection, address.crew)


def list_crews(address: BoardAddress) -> tuple[str, ...]:
    """Return the names of all crews of a database. Raises BoardServerRefused."""
    with refuse_unreachable(), connected(address) as connection:
        return crew_rows.list_crews(connection)


def note_repository(address: BoardAddress, repository: tuple[str, ...]) -> None:
    """Record the repository of a crew that has none yet: the first clone decides."""
    with connected(address) as connection:
        connection.execute(
            "UPDATE crew SET repository = %s WHERE id = %s AND repository = ''", " ".join(repository), address.crew
        )


def import_crew(address: BoardAddress, copy: CrewCopy, repository: tuple[str, ...]) -> None:
    """Write a new crew, and compare what was written with ``copy``. A crew that is the same already stays: a former
    import was killed.

    Raises Refused if the database has a crew of this name, BoardInconsistent if PostgreSQL cannot hold the copy,
    BoardServerRefused, BoardUnavailable. Then nothing was written.
    """
    wanted = msgspec.structs.replace(copy, lines=tuple(map(crew_rows.normalize_line, copy.lines)))
    with connected(address) as connection:
        try:
            with crew_rows.transaction(connection):
                crew_rows.write_copy(connection, address.crew, copy, repository)
                refuse_difference(wanted, crew_rows.read_copy(connection, address.crew))
        except crew_rows.CrewExists:
            with crew_rows.transaction(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"):
                present = crew_rows.read_copy(connection, address.crew)
            if find_difference(wanted, present) is not None:
                raise existing_error(address) from None


def migrate(address: BoardAddress) -> Migrated:
    """Bring the tables of a database to the schema of this Liza. Raises BoardServerRefused, LockTimeout."""
    with refuse_unreachable():
        return migrations.migrate(address)


def read_files(paths: Paths, pages: Mapping[str, str]) -> CrewCopy:
    """Return all that the files of a board have, with the documents ``pages``. The caller holds the lock of the board,
    and has repaired it."""
    return file_copy.read_copy(paths, pages)


def write_files(paths: Paths, copy: CrewCopy) -> None:
    """Write the files of a board, and compare them with ``copy``. Raises BoardInconsistent, WriteFailed, OSError."""
    file_copy.write_copy(paths, copy)
    refuse_difference(copy, file_copy.read_copy(paths, copy.pages))


def existing_error(address: BoardAddress) -> Refused:
    """Return the error for a name that another crew has."""
    text = f"the database at {address.server} has a crew {address.crew} already; a crew of its own needs another name"
    return Refused(text, f"liza join '{address.full_url}'")


def export_crew(address: BoardAddress) -> CrewCopy:
    """Return all that a crew has, at one moment. Raises NoCrew, BoardServerRefused, BoardUnavailable."""
    with (
        connected(address) as connection,
        crew_rows.transaction(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),
    ):
        crew_rows.require_crew(connection, address.crew)
        return crew_rows.read_copy(connection, address.crew)


def take_crew(address: BoardAddress, write: Callable[[CrewCopy], None]) -> str:
    """Hand all that a crew has to ``write`` under the lock of the crew, then rename the crew; return its new name.

    Raises Refused while a supervisor works, and what ``write`` raises: then the crew stays. Raises NoCrew,
    BoardServerRefused, BoardUnavailable.
    """
    with connected(address) as connection, crew_rows.transaction(connection):
        revision = crew_rows.lock_crew(connection, address.crew)
        supervised = crew_rows.find_supervised(connection, address.crew)
        if supervised:
            names = ", ".join(f"{agent} on {host}" for agent, host in supervised.items())
            is_here = set(supervised.values()) == {address.host}
            raise Refused(f"supervisors run: {names}", "liza down" if is_here else "liza host list")
        write(crew_rows.read_copy(connection, address.crew))
        return crew_rows.rename_crew(connection, address.crew, f"{address.crew}.exported-{revision}")


def refuse_difference(expected: CrewCopy, actual: CrewCopy) -> None:
    """Raise BoardInconsistent if a copy is not what it is a copy of."""
    difference = find_difference(expected, actual)
    if difference is not None:
        text = f"{difference.part} did not arrive as it was: {difference.actual}, expected {difference.expected}"
        raise BoardInconsistent(f"{text}; nothing was written", "liza validate")
