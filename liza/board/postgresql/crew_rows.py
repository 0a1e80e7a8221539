"""All rows of one crew: written by an import, read by an export, and set aside when the board moves back to files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

import msgspec

from liza.board.archived_entries import parse_entry
from liza.board.crew_copy import CrewCopy
from liza.board.postgresql import entry_rows
from liza.board.postgresql.connection import ServerConnection
from liza.board.revisions import RevisionLine
from liza.board.text.document import read_document
from liza.model.errors import NoCrew
from liza.model.value_classes import decodable
from liza.text.formats import format_time

TABLES: Final = (
    "entry", "archived", "journal", "signal", "page", "host", "lease", "duty", "agent_fact", "message", "log_line",
)  # fmt: skip
"""Tables with rows of a crew, beside its own row."""
_INSERT_ENTRY: Final = (
    "INSERT INTO entry (crew, change, section, name, kind, ord, body, value) VALUES (%s, 1, %s, %s, %s, %s, %s, %s)"
)
_INSERT_ARCHIVED: Final = """
INSERT INTO archived (crew, change, ord, task, body, value, status, merge_commit)
VALUES (%s, 1, %s, %s, %s, %s, %s, %s)"""
_INSERT_LINE: Final = """
INSERT INTO journal (crew, revision, time, change_id, head, entries, text) VALUES (%s, %s, %s, %s, %s, %s, %s)"""

_SUPERVISED: Final = """
SELECT lease.agent, lease.host FROM lease
JOIN host ON (host.crew, host.name, host.incarnation) = (lease.crew, lease.host, lease.incarnation)
WHERE lease.crew = %s AND host.expires > clock_timestamp() ORDER BY lease.agent"""


class CrewExists(Exception):
    """The database has a crew of this name already."""


@contextmanager
def transaction(connection: ServerConnection, begin: str = "BEGIN") -> Iterator[None]:
    """Commit the statements of the block, or none of them if it raises."""
    connection.execute(begin)
    try:
        yield
    except BaseException:
        if not connection.is_closed:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def read_repository(connection: ServerConnection, crew: str) -> tuple[str, ...] | None:
    """Return the root commits of the repository of a crew; None if the database has no such crew."""
    row = connection.fetch_one("SELECT repository FROM crew WHERE id = %s", crew)
    return None if row is None else tuple(row[0].split())


def list_crews(connection: ServerConnection) -> tuple[str, ...]:
    """Return the names of all crews of the database."""
    return tuple(name for (name,) in connection.fetch_all("SELECT id FROM crew ORDER BY id"))


def write_copy(connection: ServerConnection, crew: str, copy: CrewCopy, repository: tuple[str, ...]) -> None:
    """Write a new crew; the caller has begun a transaction. Raises CrewExists, BoardInconsistent for what PostgreSQL
    cannot hold."""
    board = read_document(copy.text)
    # A negative number of the last revision: the next line of the journal has the whole text, whatever heartbeats
    # changed since the last one.
    is_new = connection.execute(
        "INSERT INTO crew (id, revision, change, journaled, repository) VALUES (%s, %s, 1, -1, %s) "
        "ON CONFLICT DO NOTHING",
        crew,
        max([board.state.revision, *(line.revision for line in copy.lines)]),
        " ".join(repository),
    )
    if not is_new:
        raise CrewExists
    entries = entry_rows.find_writes({}, board)
    rows = [(crew, row.section, row.name, row.kind, row.order, row.body, row.value) for row in entries]
    connection.execute_many(_INSERT_ENTRY, rows)
    archived = enumerate(copy.archived.items())
    connection.execute_many(_INSERT_ARCHIVED, [_archived_row(crew, number, *entry) for number, entry in archived])
    connection.execute_many(_INSERT_LINE, [_line_row(crew, line) for line in copy.lines])
    pages = [(crew, name, text) for name, text in copy.pages.items()]
    connection.execute_many("INSERT INTO page (crew, name, text) VALUES (%s, %s, %s)", pages)
    signals = [(crew, name, text) for name, text in copy.signals.items()]
    connection.execute_many("INSERT INTO signal (crew, name, text) VALUES (%s, %s, %s)", signals)


def _archived_row(crew: str, number: int, task_id: str, piece: str) -> tuple[object, ...]:
    task = parse_entry(task_id, piece).task
    value = None if task is None else msgspec.json.encode(task).decode()
    status, merge_commit = ("", None) if task is None else (task.status.value, task.merge_commit)
    return crew, number, task_id, piece, value, status, merge_commit


def _line_row(crew: str, line: RevisionLine) -> tuple[object, ...]:
    head: dict[str, Any] = msgspec.to_builtins(line)
    entries, text, time = head.pop("entries", ()), head.pop("text", None), head.pop("time", "")
    changes = None if text is not None else json.dumps(entries, ensure_ascii=False)
    return crew, line.revision, _parse_time(time), uuid4(), json.dumps(head, ensure_ascii=False), changes, text


def _parse_time(text: str) -> datetime:
    """Return the time of a line; the first second of the epoch for a text that a person wrote and that is no time."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def normalize_line(line: RevisionLine) -> RevisionLine:
    """Return a line as the database gives it back: with its time in the usual format."""
    return msgspec.structs.replace(line, time=format_time(_parse_time(line.time)))


def read_copy(connection: ServerConnection, crew: str) -> CrewCopy:
    """Return all rows of a crew. The caller has begun a transaction in which they do not change."""
    bodies = connection.fetch_all("SELECT body FROM entry WHERE crew = %s AND body IS NOT NULL ORDER BY ord", crew)
    lines = connection.fetch_all(
        "SELECT time, head, entries, text FROM journal WHERE crew = %s ORDER BY revision", crew
    )
    archived = connection.fetch_all("SELECT task, body FROM archived WHERE crew = %s ORDER BY change, ord", crew)
    signals = connection.fetch_all("SELECT name, text FROM signal WHERE crew = %s ORDER BY name", crew)
    pages = connection.fetch_all("SELECT name, text FROM page WHERE crew = %s ORDER BY name", crew)
    text = "".join(body for (body,) in bodies)
    return CrewCopy(text, tuple(map(_build_line, lines)), dict(archived), dict(signals), dict(pages))


def _build_line(row: tuple[Any, ...]) -> RevisionLine:
    time, head, entries, text = row
    fields = {**head, "time": format_time(time), "entries": entries or (), "text": text}
    line: RevisionLine = msgspec.convert(fields, decodable(RevisionLine))
    return line


def find_supervised(connection: ServerConnection, crew: str) -> dict[str, str]:
    """Return the agents of a crew that are supervised anywhere, with their hosts."""
    return dict(connection.fetch_all(_SUPERVISED, crew))


def require_crew(connection: ServerConnection, crew: str) -> None:
    """Raise NoCrew if the database has no such crew."""
    if read_repository(connection, crew) is None:
        raise missing_crew(crew)


def missing_crew(crew: str) -> NoCrew:
    """Return the error for a crew that the database does not have."""
    return NoCrew(f"the database has no crew {crew}", "liza board import")


def lock_crew(connection: ServerConnection, crew: str) -> int:
    """Take the lock of a crew until the end of the transaction; return its revision. Raises NoCrew."""
    row = connection.fetch_one("SELECT revision FROM crew WHERE id = %s FOR UPDATE", crew)
    if row is None:
        raise missing_crew(crew)
    return int(row[0])


def rename_crew(connection: ServerConnection, crew: str, name: str) -> str:
    """Rename a crew, so that no host finds it any more, to a free name that begins with ``name``. Return that."""
    aside = _find_free_name(connection, name)
    connection.execute("UPDATE crew SET id = %s WHERE id = %s", aside, crew)
    for table in TABLES:
        connection.execute(f"UPDATE {table} SET crew = %s WHERE crew = %s", aside, crew)
    return aside


def _find_free_name(connection: ServerConnection, name: str) -> str:
    number, free = 1, name
    while connection.fetch_one("SELECT FROM crew WHERE id = %s", free) is not None:
        number += 1
        free = f"{name}.{number}"
    return free
