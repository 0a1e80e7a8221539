"""The tables of the archive's index in SQLite: their schema, the row of an entry, and queries with more than SQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

from liza.board import archive_files
from liza.board.archive_files import ArchivedEntry
from liza.rules.formatting.times import format_time
from liza.rules.merging.tested_words import is_untested
from liza.rules.model import FINAL_STATUSES, Task
from liza.rules.reports import timings
from liza.rules.tasks import archiving

_MAX_IDS: Final = 500  # ids in one query
_SCHEMA_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE files (name TEXT PRIMARY KEY, inode INTEGER, mtime INTEGER, size INTEGER, sha TEXT, error TEXT);
CREATE TABLE entries (
    id TEXT, place TEXT, name TEXT, offset INTEGER, length INTEGER, status TEXT, verdicts TEXT, untested INTEGER,
    superseded_by TEXT, merge_commit TEXT, review_commit TEXT, error TEXT, waited TEXT
);
CREATE INDEX by_id ON entries (id, place, offset);
CREATE INDEX by_place ON entries (place, offset);
CREATE INDEX by_status ON entries (status, verdicts);
CREATE INDEX by_test ON entries (untested, status);
CREATE INDEX by_wait ON entries (waited) WHERE waited != '';
CREATE INDEX by_commit ON entries (merge_commit);
CREATE TABLE generation (number INTEGER);
INSERT INTO generation VALUES (0);
"""


def is_locked(error: Exception) -> bool:
    """Return whether SQLite waited in vain for another process that has the database locked."""
    # The low byte: extended codes have more bits.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def prepare(database: sqlite3.Connection) -> sqlite3.Connection:
    """Return the database with its tables; a file of another version loses its old ones."""
    try:
        database.execute("PRAGMA trusted_schema = OFF")
        if _schema_version(database) != _SCHEMA_VERSION:
            database.execute("BEGIN IMMEDIATE")
            if _schema_version(database) != _SCHEMA_VERSION:
                _create_tables(database)
            database.execute("COMMIT")
    except BaseException:
        database.close()
        raise
    return database


def _schema_version(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def _create_tables(database: sqlite3.Connection) -> None:
    for kind, name in database.execute("SELECT type, name FROM sqlite_master WHERE sql IS NOT NULL").fetchall():
        database.execute(f'DROP {kind} IF EXISTS "{name}"')
    for statement in filter(str.strip, _SCHEMA.split(";")):
        database.execute(statement)
    database.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")


def entry_row(entry: ArchivedEntry, name: str) -> tuple[object, ...]:
    """Return the row of an entry of the file ``name``."""
    position = archive_files.sort_key(name)
    task = entry.task
    if task is None:
        return (entry.id, position, name, entry.offset, entry.length, "", "", 0, "", None, None, entry.error, "")
    # An entry that a person made open again is reported, and not counted.
    fault = "" if task.status in FINAL_STATUSES else f"its status is {task.status}, which is not final"
    totals = archiving.totals_of((task,))
    words = ",".join(sorted(word for word, number in totals.verdicts.items() for _ in range(number)))
    status = "" if fault else task.status.value
    return (
        *(entry.id, position, name, entry.offset, entry.length, status, words, int(is_untested(task))),
        *(" ".join(task.superseded_by), task.merge_commit, task.review_commit, fault, _format_spans(task)),
    )


def _format_spans(task: Task) -> str:
    spans = timings.waiting_spans(task, archiving.closed_at(task))
    return ",".join(f"{format_time(start)} {format_time(end)}" for start, end in spans)


def count_rows(database: sqlite3.Connection, on_board: set[str]) -> list[tuple[str, str, int]]:
    """Return status, verdicts and number of the entries that count."""
    counted = database.execute("SELECT status, verdicts, COUNT(*) FROM entries GROUP BY status, verdicts")
    return [*counted, *_hidden_rows(database, on_board)]


def _hidden_rows(database: sqlite3.Connection, on_board: set[str]) -> Iterator[tuple[str, str, int]]:
    """Yield status and verdicts of the entries that do not count: of tasks on the board, and all but the last of a
    task."""
    repeated = {task_id for task_id, _ in repeated_ids(database)}
    query = "SELECT status, verdicts, id FROM entries WHERE id IN (?) ORDER BY place, offset"
    rows = select_in(database, query, on_board | repeated)
    last = {row[2]: index for index, row in enumerate(rows)}
    for index, (status, verdicts, task_id) in enumerate(rows):
        if task_id in on_board or index != last[task_id]:
            yield status, verdicts, -1


def find_copies(database: sqlite3.Connection) -> list[tuple[str, int]]:
    """Return file and offset of each entry with a later one of the same task that can be read."""
    repeated = [task_id for task_id, _ in repeated_ids(database)]
    query = "SELECT id, name, offset, error FROM entries WHERE id IN (?) ORDER BY place, offset"
    rows = select_in(database, query, repeated)
    last = {row[0]: row for row in rows}
    return [(row[1], row[2]) for row in rows if row is not last[row[0]] and _is_readable(last[row[0]][3])]


def _is_readable(error: str) -> bool:
    return not error


def repeated_ids(database: sqlite3.Connection) -> list[tuple[str, str]]:
    """Return the tasks with more than one entry: id, file of the last entry."""
    query = "SELECT id, name, MAX(place) FROM entries WHERE id != '' GROUP BY id HAVING COUNT(*) > 1"
    return [row[:2] for row in database.execute(query)]


def select_in(database: sqlite3.Connection, query: str, values: Iterable[str]) -> list[tuple[Any, ...]]:
    """Return the rows of a query with ``IN (?)`` for many values."""
    wanted = sorted(filter(is_storable, set(values)))
    return [
        row
        for start in range(0, len(wanted), _MAX_IDS)
        for row in database.execute(
            query.replace("?", marks(len(wanted[start : start + _MAX_IDS]))), wanted[start : start + _MAX_IDS]
        )
    ]


def is_storable(text: str) -> bool:
    """Return whether the database can have the text: bytes of a command line that are not UTF-8 cannot be stored."""
    with suppress(UnicodeEncodeError):
        text.encode()
        return True
    return False


def marks(number: int) -> str:
    """Return that many placeholders."""
    return ",".join("?" * number)
