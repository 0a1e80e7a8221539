"""The statements that read and write the rows of a crew, with their values. Nothing here is sent."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from liza.board.postgresql import hosts_table
from liza.board.postgresql.board_copy import CrewRow, DeltaRow
from liza.board.postgresql.connection import STATEMENT_TIMEOUT, TRANSACTION_TIMEOUT, StatementValues
from liza.board.postgresql.entry_rows import EntryWrite
from liza.board.revisions import RevisionLine

MAX_ROWS: Final = 256
"""Rows that are read under the lock of a crew; for more it is released first."""
MAX_BYTES: Final = 128 << 10
"""Bytes that are read under the lock: less than a socket holds, so the server never waits for a stopped client."""
_SWEEP_AGE: Final = 1024  # changes for which the row of a deleted entry stays
_READ: Final = """
SELECT c.revision, c.change, c.journaled, clock_timestamp(), c.swept <= %(seen)s,
       e.section, e.name, e.ord, e.body, e.change
FROM crew c LEFT JOIN entry e ON e.crew = c.id AND e.change > %(seen)s
WHERE c.id = %(crew)s"""
_READ_ALL: Final = """
SELECT c.revision, c.change, c.journaled, clock_timestamp(), true, e.section, e.name, e.ord, e.body, e.change
FROM crew c LEFT JOIN entry e ON e.crew = c.id AND e.body IS NOT NULL
WHERE c.id = %(crew)s"""
LOCK_LIMIT: Final = 30.0
"""Seconds for which a change waits for the others of its crew."""
_WAIT_LONG: Final = """
SELECT set_config('lock_timeout', %s, true), set_config('statement_timeout', '0', true),
       CASE WHEN current_setting('server_version_num')::int >= 170000
            THEN set_config('transaction_timeout', '0', true) END"""
_QUEUE: Final = "SELECT pg_advisory_xact_lock(hashtext('liza change'), hashtext(%s))"
"""Only for the order: of clients that wait for a row that others change, a later one is often served first."""
_WAIT_SHORT: Final = """
SELECT set_config('statement_timeout', %s, true),
       CASE WHEN current_setting('server_version_num')::int >= 170000
            THEN set_config('transaction_timeout', %s, true) END"""
"""The limit of the transaction begins here."""
_LOCK: Final = "SELECT revision, change, journaled FROM crew WHERE id = %(crew)s FOR NO KEY UPDATE"
_READ_LOCKED: Final = """
WITH newer AS MATERIALIZED (
  SELECT section, name, ord, body, change FROM entry
  WHERE crew = %(crew)s AND change > %(seen)s LIMIT %(rows)s + 1
), size AS (
  SELECT count(*) <= %(rows)s AND coalesce(sum(octet_length(body)), 0) <= %(bytes)s
    AND (SELECT swept <= %(seen)s FROM crew WHERE id = %(crew)s) AS fits FROM newer
)
SELECT clock_timestamp(), size.fits, newer.* FROM size LEFT JOIN newer ON size.fits"""
"""A statement of its own: it sees what was committed while the lock was waited for."""
_WRITE_ENTRIES: Final = """
INSERT INTO entry (crew, change, section, name, kind, ord, body, value)
SELECT %(crew)s, %(change)s, section, name, kind, ord, body, value::jsonb
FROM unnest(%(sections)s::text[], %(names)s::text[], %(kinds)s::text[], %(orders)s::float8[], %(bodies)s::text[],
            %(values)s::text[]) AS row (section, name, kind, ord, body, value)
ON CONFLICT (crew, section, name) DO UPDATE
SET change = excluded.change, kind = excluded.kind, ord = excluded.ord, body = excluded.body, value = excluded.value"""
_COUNT_WRITTEN: Final = """
SELECT (
  SELECT count(*) FROM unnest(%(sections)s::text[], %(names)s::text[], %(bodies)s::text[]) AS row (section, name, body)
  JOIN entry e ON e.crew = %(crew)s AND (e.section, e.name) = (row.section, row.name)
    AND e.body IS NOT DISTINCT FROM row.body
) + (
  SELECT count(*) FROM unnest(%(tasks)s::text[], %(moved)s::text[]) AS row (task, body)
  JOIN archived a ON a.crew = %(crew)s AND (a.task, a.body) = (row.task, row.body)
)"""
_WRITE_JOURNAL: Final = """
INSERT INTO journal (crew, revision, time, change_id, head, entries, text)
VALUES (%(crew)s, %(revision)s, clock_timestamp(), %(id)s, %(head)s::jsonb, %(entries)s::jsonb, %(text)s)"""
_FIND_CHANGE: Final = "SELECT count(*) FROM journal WHERE crew = %(crew)s AND change_id = %(id)s"
NOTIFY_MS: Final = 50
"""Milliseconds after a notification in which no other is sent: watchers look again by themselves."""
_WRITE_CREW: Final = f"""
UPDATE crew SET revision = %(revision)s, change = %(change)s, journaled = %(journaled)s,
  notified = CASE WHEN notified BETWEEN statement_timestamp() - interval '{NOTIFY_MS} ms' AND statement_timestamp()
                  THEN notified ELSE statement_timestamp() END
WHERE id = %(crew)s RETURNING notified = statement_timestamp()"""
_WRITE_ARCHIVED: Final = """
INSERT INTO archived (crew, change, ord, task, body, value, status, merge_commit)
SELECT %(crew)s, %(change)s, ord, task, body, value::jsonb, coalesce(value::jsonb->>'status', ''),
       value::jsonb->>'merge_commit'
FROM unnest(%(tasks)s::text[], %(bodies)s::text[], %(values)s::text[]) WITH ORDINALITY AS row (task, body, value, ord)
ON CONFLICT (crew, task) DO UPDATE
SET change = excluded.change, ord = excluded.ord, body = excluded.body, value = excluded.value,
    status = excluded.status, merge_commit = excluded.merge_commit, time = clock_timestamp()"""
_INSERT_CREW: Final = """
INSERT INTO crew (id, started) VALUES (%(crew)s, clock_timestamp()) ON CONFLICT DO NOTHING RETURNING id"""
_SWEEP: Final = """
WITH gone AS (
  DELETE FROM entry WHERE crew = %(crew)s AND body IS NULL
    AND change <= least(%(limit)s, (SELECT min(seen_change) FROM host WHERE crew = %(crew)s)) RETURNING change
)
UPDATE crew SET swept = (SELECT max(change) FROM gone) WHERE id = %(crew)s AND EXISTS (SELECT FROM gone)"""
"""A reader that saw less than ``swept`` reads all entries again."""


class CrewStatement(NamedTuple):
    """A statement and its values."""

    sql: str
    values: StatementValues = ()


BEGIN: Final = CrewStatement("BEGIN")
COMMIT: Final = CrewStatement("COMMIT")
ROLLBACK: Final = CrewStatement("ROLLBACK")


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────


def read_newer(crew: str, seen: int) -> CrewStatement:
    """Return the query of what is newer than the change ``seen``; 0: of all entries."""
    return CrewStatement(_READ, {"crew": crew, "seen": seen}) if seen else CrewStatement(_READ_ALL, {"crew": crew})


def lock_crew(crew: str) -> list[CrewStatement]:
    """Return the queries that take the lock of a crew until the end of the transaction, in the order of arrival.

    The last one has the numbers of the crew.
    """
    return [
        CrewStatement(_WAIT_LONG, (f"{LOCK_LIMIT:g}s",)),
        CrewStatement(_QUEUE, (crew,)),
        CrewStatement(_WAIT_SHORT, (STATEMENT_TIMEOUT, TRANSACTION_TIMEOUT)),
        CrewStatement(_LOCK, {"crew": crew}),
    ]


def insert_crew(crew: str) -> CrewStatement:
    """Return the statement that adds a crew; it has no row if the crew is there."""
    return CrewStatement(_INSERT_CREW, {"crew": crew})


def read_locked(crew: str, seen: int) -> CrewStatement:
    """Return the query of what is newer than ``seen``, to be sent after the lock."""
    return CrewStatement(_READ_LOCKED, {"crew": crew, "seen": seen, "rows": MAX_ROWS, "bytes": MAX_BYTES})


def check_lease(crew: str, host: str, incarnation: UUID) -> CrewStatement:
    """Return the query that has a row if the host has this incarnation and its lease is not over."""
    return CrewStatement(hosts_table.ACTS, (crew, host, incarnation))


def parse_delta(rows: Iterable[Sequence[Any]], start: int) -> list[DeltaRow]:
    """Return the entries of a result, whose columns begin at ``start``; without entries they are null."""
    return [DeltaRow(*row[start:]) for row in rows if row[start] is not None]


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────


class CrewChange(msgspec.Struct, frozen=True):
    """A change of a crew: ``writes`` to its rows, and its line of the journal; None: a heartbeat.

    ``base`` are the numbers before it. ``moved`` are the archived tasks: id → text and value in JSON.
    """

    crew: str
    id: UUID
    base: CrewRow
    after: CrewRow
    writes: Sequence[EntryWrite]
    line: RevisionLine | None
    moved: Mapping[str, tuple[str, str | None]] = {}

    def list_statements(self) -> list[CrewStatement]:
        """Return the statements that write the change, without the commit. The last has one row: whether watchers are
        to be notified."""
        statements = [self._write_entries()] if self.writes else []
        if self.moved:
            statements.append(self._write_archived())
        if self.line is not None:
            statements.append(self._write_journal(self.line))
        if any(write.body is None for write in self.writes):
            statements.append(CrewStatement(_SWEEP, {"crew": self.crew, "limit": self.after.change - _SWEEP_AGE}))
        return [*statements, CrewStatement(_WRITE_CREW, {"crew": self.crew, **self.after._asdict()})]

    def find_written(self) -> tuple[CrewStatement, int]:
        """Return the query whose count tells whether the change was written, and the count if it was."""
        if self.line is not None:
            return CrewStatement(_FIND_CHANGE, {"crew": self.crew, "id": self.id}), 1
        moved = {"tasks": list(self.moved), "moved": [body for body, _ in self.moved.values()]}
        columns = {name: self._columns()[name] for name in ("crew", "sections", "names", "bodies")}
        return CrewStatement(_COUNT_WRITTEN, columns | moved), len(self.writes) + len(self.moved)

    def _columns(self) -> dict[str, Any]:
        return {
            "crew": self.crew,
            "change": self.after.change,
            "sections": [write.section for write in self.writes],
            "names": [write.name for write in self.writes],
            "kinds": [write.kind for write in self.writes],
            "orders": [write.order for write in self.writes],
            "bodies": [write.body for write in self.writes],
            "values": [write.value for write in self.writes],
        }

    def _write_entries(self) -> CrewStatement:
        return CrewStatement(_WRITE_ENTRIES, self._columns())

    def _write_archived(self) -> CrewStatement:
        values = {
            "crew": self.crew,
            "change": self.after.change,
            "tasks": list(self.moved),
            "bodies": [body for body, _ in self.moved.values()],
            "values": [value for _, value in self.moved.values()],
        }
        return CrewStatement(_WRITE_ARCHIVED, values)

    def _write_journal(self, line: RevisionLine) -> CrewStatement:
        head = msgspec.to_builtins(line)
        entries = head.pop("entries", ())
        text = head.pop("text", None)
        values = {
            "crew": self.crew,
            "revision": line.revision,
            "id": self.id,
            "head": json.dumps(head, ensure_ascii=False),
            "entries": None if text is not None else json.dumps(entries, ensure_ascii=False),
            "text": text,
        }
        return CrewStatement(_WRITE_JOURNAL, values)
