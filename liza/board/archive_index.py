"""Index of the archived tasks: where each entry is, and the facts that rules and reports need.

It is derived from the files of the archive and can be deleted at any time. Each use first compares the files with the
index by inode, size and mtime, and reads only what changed: after a move only the appended entries.
"""

from __future__ import annotations

import hashlib
import shlex
import sqlite3
import stat
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from liza.board import archive_files, archive_tables
from liza.board.archive_files import ArchivedEntry, ArchiveIntent
from liza.board.text.parse import NeedsSlowPath
from liza.rules.errors import BoardInconsistent, LockTimeout, UnknownId
from liza.rules.model import Status, Task
from liza.rules.paths import Paths
from liza.rules.reports.timings import Span
from liza.rules.tasks.archiving import ArchiveTotals
from liza.system import files

_TIMEOUT: Final = 10.0  # seconds to wait for another process that updates the index
_MAX_LOOKS: Final = 100  # looks at files that another process is changing
_COLUMNS: Final = "id, status, superseded_by, merge_commit, review_commit, error"
_T = TypeVar("_T")
_INCOMPLETE: Final[files.Stamp] = (0, 0, 0)
"""Stamp of a file with a move under way: it is read again at the next use."""


class IndexedTask(msgspec.Struct, frozen=True):
    """An archived task as the index has it. ``error`` is why its entry cannot be read; then ``status`` is empty."""

    id: str
    status: str
    superseded_by: tuple[str, ...]
    merge_commit: str | None
    review_commit: str | None
    error: str


class ArchiveIndex:
    """The index of one crew's archive. Each query first brings it up to date.

    All queries raise BoardInconsistent if the archive cannot be read, or keeps changing, and LockTimeout if another
    process keeps the index locked.
    """

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._connection: sqlite3.Connection | None = None

    def find(self, ids: Iterable[str]) -> dict[str, IndexedTask]:
        """Return the archived tasks among ``ids``."""
        wanted = tuple(ids)
        query = f"SELECT {_COLUMNS} FROM entries WHERE id IN (?) ORDER BY place, offset"
        return {
            row[0]: _indexed_task(row)
            for row in self._ask(lambda database: archive_tables.select_in(database, query, wanted))
        }

    def find_merges(self, commits: Iterable[str]) -> tuple[IndexedTask, ...]:
        """Return the archived tasks with one of these merge commits."""
        wanted = tuple(commits)
        query = f"SELECT {_COLUMNS} FROM entries WHERE merge_commit IN (?) ORDER BY place, offset"
        return tuple(map(_indexed_task, self._ask(lambda database: archive_tables.select_in(database, query, wanted))))

    def newest_merges(self, number: int) -> tuple[str, ...]:
        """Return the merge commits of the merged tasks that were archived last, at most ``number``."""
        query = "SELECT merge_commit FROM entries WHERE merge_commit != '' ORDER BY place DESC, offset DESC LIMIT ?"
        return tuple(row[0] for row in self._select(query, number))

    def newest_ids(self, number: int) -> tuple[str, ...]:
        """Return the ids of the tasks that were archived last, at most ``number``."""
        query = "SELECT id FROM entries WHERE error = '' ORDER BY place DESC, offset DESC LIMIT ?"
        return tuple(row[0] for row in self._select(query, number))

    def read_task(self, task_id: str) -> Task:
        """Return an archived task from its file. Raises UnknownId."""
        query = "SELECT name, offset, length FROM entries WHERE id = ? ORDER BY place DESC, offset DESC LIMIT 1"
        rows = self._select(query, task_id) if archive_tables.is_storable(task_id) else []
        if not rows:
            raise UnknownId(f"there is no task {task_id!r} in the archive", "liza task list")
        name, offset, length = rows[0]
        data = _complete_bytes(self._paths, name, archive_files.read_intent(self._paths))
        entry = archive_files.parse_entry(data[offset : offset + length].decode(errors="replace"), offset)
        if entry.task is None or entry.id != task_id:
            reason = entry.error or "the file has changed meanwhile"
            raise BoardInconsistent(f".liza/archive/{name}: the entry of {task_id}: {reason}", "liza validate")
        return entry.task

    def read_tasks(self, ids: Iterable[str]) -> dict[str, Task]:
        """Return those of the tasks whose entries can be read. Each file is read once."""
        wanted = tuple(ids)
        query = "SELECT id, name, offset, length FROM entries WHERE id IN (?) ORDER BY place, offset"
        rows = self._ask(lambda database: archive_tables.select_in(database, query, wanted))
        intent = archive_files.read_intent(self._paths)
        texts = {name: _complete_bytes(self._paths, name, intent) for name in {row[1] for row in rows}}
        tasks = {}
        for task_id, name, offset, length in rows:
            entry = archive_files.parse_entry(texts[name][offset : offset + length].decode(errors="replace"), offset)
            if entry.task is not None and entry.id == task_id:
                tasks[task_id] = entry.task
        return tasks

    def totals(self, without: Iterable[str] = ()) -> ArchiveTotals:
        """Return the totals of the archive without the tasks ``without``; a task that occurs twice counts once."""
        on_board = set(without)
        statuses: Counter[str] = Counter()
        verdicts: Counter[str] = Counter()
        for status, words, number in self._ask(lambda database: archive_tables.count_rows(database, on_board)):
            statuses[status] += number
            for word, count in Counter(filter(None, words.split(","))).items():
                verdicts[word] += count * number
        return ArchiveTotals(
            {name: number for name, number in statuses.items() if name and number},
            {name: number for name, number in verdicts.items() if number},
        )

    def count_untested(self) -> int:
        """Return how many archived tasks were merged without a test."""
        query = "SELECT COUNT(*) FROM entries WHERE untested = 1 AND status = ?"
        return int(self._select(query, Status.MERGED.value)[0][0])

    def waiting_spans(self) -> list[Span]:
        """Return the times in which archived tasks waited for a person."""
        rows = self._select("SELECT waited FROM entries WHERE waited != ''")
        return [_parse_span(span) for (text,) in rows for span in text.split(",")]

    def find_faults(self) -> list[tuple[str, str, str]]:
        """Return what cannot be read or is not closed: file, id or an empty text, fault."""
        faults = self._select("SELECT name, '', error FROM files WHERE error != ''")
        return faults + self._select("SELECT name, id, error FROM entries WHERE error != ''")

    def find_repeated(self) -> list[tuple[str, str]]:
        """Return the tasks that occur more than once: file of the last entry, id."""
        return [(name, task_id) for task_id, name in self._ask(archive_tables.repeated_ids)]

    def find_copies(self) -> dict[str, list[int]]:
        """Return where entries begin that do not count, since a later one of the same task does: bytes by file.

        Not those of a task whose last entry cannot be read.
        """
        copies: dict[str, list[int]] = {}
        for name, offset in self._ask(archive_tables.find_copies):
            copies.setdefault(name, []).append(offset)
        return copies

    def has_unreadable(self) -> bool:
        """Return whether a file or an entry cannot be read, or is not counted."""
        return bool(self.find_faults())

    def ids(self) -> list[str]:
        """Return the ids of all archived tasks."""
        return [row[0] for row in self._select("SELECT DISTINCT id FROM entries WHERE id != ''")]

    def appendable_sizes(self) -> dict[str, int]:
        """Return the sizes in bytes of the files to which entries can be appended, by name."""
        return dict(self._select("SELECT name, size FROM files WHERE error = ''"))

    def generation(self) -> int:
        """Return a number that changes whenever the files of the archive have changed."""
        return int(self._select("SELECT number FROM generation")[0][0])

    # ── keeping it up to date ────────────────────────────────────────────────────────────────────────────────────

    def _select(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self._ask(lambda database: database.execute(query, values).fetchall())

    def _ask(self, query: Callable[[sqlite3.Connection], _T]) -> _T:
        """Return the answer of the index, up to date. A damaged file is made again; without a usable disk it is in
        memory. A locked one is not damaged: it is complete once the other process has released it.
        """
        for attempt in (self._open_file, self._recreate_file, self._open_memory):
            try:
                database = self._connection = self._connection or attempt()
                self._refresh(database)
                return query(database)
            except (sqlite3.Error, OSError) as error:
                self._close()
                if archive_tables.is_locked(error):
                    raise self._lock_timeout() from error
        raise BoardInconsistent("the index of the archive cannot be made", "liza doctor")

    def _lock_timeout(self) -> LockTimeout:
        path = self._paths.archive_index
        return LockTimeout(
            f"{path} was not free within {_TIMEOUT:g} s: another process has locked the database",
            shlex.join(["fuser", "-v", str(path)]),
        )

    def _close(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _open_file(self) -> sqlite3.Connection:
        # A link or a pipe at one of the paths is replaced: it is never followed or waited for. SQLite itself opens the
        # files beside the database, and would wait for the writer of a pipe.
        for path in self._files():
            with suppress(FileNotFoundError):
                if not stat.S_ISREG(path.lstat().st_mode):
                    path.rename(path.with_name(f"{path.name}.odd"))
        path = self._paths.archive_index
        return archive_tables.prepare(sqlite3.connect(path, timeout=_TIMEOUT, isolation_level=None))

    def _recreate_file(self) -> sqlite3.Connection:
        for path in self._files():
            path.unlink(missing_ok=True)
        return self._open_file()

    def _files(self) -> list[Path]:
        """Return the paths of the database and of the files that SQLite may open beside it."""
        path = self._paths.archive_index
        return [path.with_name(f"{path.name}{suffix}") for suffix in ("", "-journal", "-wal", "-shm")]

    def _open_memory(self) -> sqlite3.Connection:
        return archive_tables.prepare(sqlite3.connect(":memory:", isolation_level=None))

    def _refresh(self, database: sqlite3.Connection) -> None:
        """Index the files that changed. Raises BoardInconsistent, sqlite3.Error."""
        recorded = _recorded_stamps(database)
        stamps = self._stamps()
        for _ in range(_MAX_LOOKS):
            intent = archive_files.read_intent(self._paths)
            if intent is None and stamps == recorded:
                return
            again = self._stamps()
            # An append ends before its intent is deleted. So without an intent, and with the sizes of before, no
            # file is in the course of being appended to. With an intent, its text counts, not the end of the file.
            if intent is not None or again == stamps:
                self._index_changed(database, stamps, intent)
                return
            stamps = again
        raise BoardInconsistent("the files in .liza/archive keep changing", f"ls -l {self._paths.archive}")

    def _stamps(self) -> dict[str, files.Stamp]:
        names = archive_files.list_names(self._paths)
        stamps = ((name, files.read_stamp(self._paths.archive / name)) for name in names)
        return {name: stamp for name, stamp in stamps if stamp is not None}

    def _index_changed(
        self, database: sqlite3.Connection, stamps: dict[str, files.Stamp], intent: ArchiveIntent | None
    ) -> None:
        if intent is not None:
            stamps = {**stamps, intent.name: _INCOMPLETE}
        database.execute("BEGIN IMMEDIATE")
        try:
            recorded = _recorded_stamps(database)
            changed = [name for name in recorded.keys() | stamps if recorded.get(name) != stamps.get(name)]
            changed += [name for name, stamp in stamps.items() if stamp == _INCOMPLETE and name not in changed]
            for name in sorted(changed):
                self._index_file(database, name, stamps.get(name), intent)
            if changed:
                database.execute("UPDATE generation SET number = number + 1")
            database.execute("COMMIT")
        except BaseException:
            # After a full disk SQLite has rolled back by itself.
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise

    def _index_file(
        self, database: sqlite3.Connection, name: str, stamp: files.Stamp | None, intent: ArchiveIntent | None
    ) -> None:
        """Index one file: the entries behind the indexed part if that is unchanged, else all."""
        indexed = database.execute("SELECT size, sha FROM files WHERE name = ? AND error = ''", (name,)).fetchone()
        database.execute("DELETE FROM files WHERE name = ?", (name,))
        start, entries, data, error = 0, list[ArchivedEntry](), b"", ""
        if stamp is not None:
            try:
                data = _complete_bytes(self._paths, name, intent)
                data = data if stamp == _INCOMPLETE else data[: stamp[2]]
                unchanged = indexed is not None and _sha(data[: indexed[0]]) == indexed[1]
                start, entries = _split_from(data, indexed[0] if unchanged else 0)
            except (BoardInconsistent, NeedsSlowPath) as failure:
                error = str(failure)
        if start == 0:
            database.execute("DELETE FROM entries WHERE name = ?", (name,))
        rows = [archive_tables.entry_row(entry, name) for entry in entries]
        database.executemany(f"INSERT INTO entries VALUES ({archive_tables.marks(13)})", rows)
        if stamp is not None:
            file_row = (name, stamp[0], stamp[1], len(data) if stamp == _INCOMPLETE else stamp[2], _sha(data), error)
            database.execute(f"INSERT INTO files VALUES ({archive_tables.marks(6)})", file_row)


def _split_from(data: bytes, start: int) -> tuple[int, list[ArchivedEntry]]:
    """Return the entries from ``start``, or all if the text there belongs to the entry before. Raises NeedsSlowPath."""
    if start:
        with suppress(NeedsSlowPath):
            return start, archive_files.split_file(data, start)
    return 0, archive_files.split_file(data)


def _recorded_stamps(database: sqlite3.Connection) -> dict[str, files.Stamp]:
    return {row[0]: row[1:] for row in database.execute("SELECT name, inode, mtime, size FROM files")}


def _complete_bytes(paths: Paths, name: str, intent: ArchiveIntent | None) -> bytes:
    """Return the bytes of a file; during a move as they will be at its end."""
    if intent is None or intent.name != name:
        return archive_files.read_bytes(paths, name)
    try:
        data = archive_files.read_bytes(paths, name)
    except BoardInconsistent:
        data = b""
    text = intent.text.encode()
    return data[: intent.size] + text if text.startswith(data[intent.size :]) else data


def _parse_span(text: str) -> Span:
    start, end = map(datetime.fromisoformat, text.split(" "))
    return start, end


def _indexed_task(row: tuple[str, str, str, str | None, str | None, str]) -> IndexedTask:
    return IndexedTask(row[0], row[1], tuple(row[2].split()), row[3], row[4], row[5])


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
