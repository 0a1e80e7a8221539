"""The board in PostgreSQL: the same verbs as the board in a file, on rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import msgspec

from liza.board import revision_texts
from liza.board.address import BoardAddress
from liza.board.contract import Alert, Restored, RestoredArchive, Transaction
from liza.board.events import Watch
from liza.board.last_copy import CopySaver
from liza.board.postgresql import board_copy, crew_lock, entry_rows, signal_rows
from liza.board.postgresql.archived_rows import ArchivedRows, describe_moved
from liza.board.postgresql.board_copy import BoardCopy, CrewRow
from liza.board.postgresql.connection import ServerConnection, connect, connect_with_facts
from liza.board.postgresql.crew_lock import CrewLock
from liza.board.postgresql.crew_statements import CrewChange
from liza.board.postgresql.hosts_table import HostsTable
from liza.board.postgresql.links import Links
from liza.board.postgresql.server_time import ServerClock, ServerTime
from liza.board.postgresql.shared_rows import SharedRows
from liza.board.revisions import RevisionLine, RevisionRecord, sha, with_statuses
from liza.board.rules.host_leases import AgentPlacement, HostTable
from liza.board.signals import Signal
from liza.board.stored_board import begin_board, change_board
from liza.board.text import document
from liza.board.text.document import Document
from liza.board.text.values import check_revision
from liza.model.errors import BoardTooNew, BoardUnreadable, Refused
from liza.model.model import Clock, State
from liza.model.paths import Paths, split_run
from liza.model.value_classes import decodable
from liza.system import files
from liza.text.formats import format_time

_WRITE_PAGE: Final = """
INSERT INTO page (crew, name, text, time) VALUES (%(crew)s, %(name)s, %(text)s, clock_timestamp())
ON CONFLICT (crew, name) DO UPDATE SET text = excluded.text, time = excluded.time RETURNING name"""
_HEADS: Final = """
SELECT revision, time, head FROM journal WHERE crew = %(crew)s AND revision < %(below)s
ORDER BY revision DESC LIMIT %(limit)s"""
_LINES: Final = """
SELECT revision, time, head, entries, text FROM journal WHERE crew = %(crew)s AND revision < %(below)s
ORDER BY revision DESC LIMIT %(limit)s"""
_HEADS_AT_ONCE: Final = 256
_LINES_AT_ONCE: Final = 32
_NEWEST: Final = (1 << 63) - 1
_NO_REVISION: Final = -1
"""As ``CrewRow.journaled``: the next line of the journal has the whole text."""


_HELD_SECONDS: Final = 1.0
"""Seconds for which the agents of hosts are remembered: a look at all agents asks for each of them, and a host is given
up after a minute."""


class PostgresBoard(ArchivedRows):
    """The board of one crew in PostgreSQL. Only one thread at a time is in a transaction; the others wait."""

    def __init__(
        self,
        paths: Paths,
        clock: Clock,
        address: BoardAddress,
        trusted: Callable[[State], State] = lambda state: state,
        *,
        is_look: bool = False,
    ) -> None:
        """``trusted`` replaces the settings of a board that was read by the effective ones; see ``rules.settings``.

        ``is_look``: a person looks, who soon gets the last copy instead if the server does not answer.
        """
        super().__init__(paths, trusted)
        self.address = address
        self._is_look = is_look
        self._crew = address.crew
        self._clock = clock
        self._links = Links(self._connect, address.crew)
        self._shared = SharedRows(self._links)
        self._server_time = ServerTime()
        self._copy: BoardCopy | None = None
        self._saver = CopySaver(paths)
        self._host: tuple[str, UUID] | None = None
        self._placements: tuple[float, HostTable] | None = None

    def clock(self, system: Clock) -> Clock:
        return ServerClock(self._server_time, lambda: self._links.use(self._ask_time), system)

    def close(self) -> None:
        """Close the connections that are not in use."""
        self._links.close()

    def _connect(self) -> ServerConnection:
        connection, facts = connect_with_facts(self.address, is_look=self._is_look)
        self._server_time.measure(facts.time, facts.measured)
        return connection

    def _ask_time(self, connection: ServerConnection) -> None:
        [(time,)] = connection.fetch_all("SELECT clock_timestamp()")
        self._server_time.measure(time)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def read_as_written(self) -> State:
        return self._read_copy().document.state

    def read_text(self) -> str:
        return self._read_copy().text

    def unknown_config(self) -> tuple[str, ...]:
        return document.find_unknown_config(self._read_copy().document)

    def take_alerts(self) -> list[Alert]:
        return []

    def _read_copy(self) -> BoardCopy:
        copy, time = self._links.use(lambda connection: crew_lock.catch_up(connection, self._crew, self._copy))
        self._server_time.measure(time)
        self._saver.save_text(copy.text)
        return self._remember(copy)

    def _remember(self, copy: BoardCopy) -> BoardCopy:
        if self._copy is not None and self._copy.numbers.change != copy.numbers.change:
            self._placements = None  # The end of a session is a change, and others wait for it.
        self._copy = copy
        return copy

    # ── changing ─────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def transaction(self, actor: str, event: str, *, task: str | None = None) -> Iterator[Transaction]:
        with self._hold_lock() as (lock, copy):
            before = copy.document.state
            tx = Transaction(before, before, copy.document, task)
            yield tx
            if tx.state is before or tx.state == before:
                return
            number = _next_revision(copy)
            changed = change_board(copy.document, before, tx.state, number)
            line = RevisionLine(number, actor=actor, event=event, task=tx.task, archived=tuple(tx.moved))
            self._commit(lock, copy, changed, line, moved=tx.moved)
            tx.state, tx.revision = changed.state, number

    @contextmanager
    def heartbeat(self, actor: str) -> Iterator[Transaction]:
        with self._hold_lock() as (lock, copy):
            before = copy.document.state
            tx = Transaction(before, before, copy.document)
            yield tx
            if tx.state is before or tx.state == before:
                return
            changed = change_board(copy.document, before, tx.state, before.revision)
            tx.state = changed.state
            self._commit(lock, copy, changed, None)

    def create(self, text: str, above: int = 0) -> None:
        self._make_directories()
        number = 1 + above
        first = begin_board(text, number)
        nothing = board_copy.read_copy(self._crew, CrewRow(0, 0, _NO_REVISION), (), None)
        line = RevisionLine(number, actor="human", event="init")
        with self._one_thread():
            change = self._describe_change(nothing, first, line, full=True)
            crew_lock.create_crew(self._links, change)
            self._remember(board_copy.written_copy(nothing, change.after, change.writes, first))
            signal_rows.notify(self._links)

    def replace_text(self, actor: str, text: str, event: str = "edit") -> None:
        wanted = document.read_document(text)
        with self._hold_lock() as (lock, copy):
            self._commit_text(lock, copy, _parse_or_none(copy) or self._last_good(wanted), actor, event, wanted)

    def transform_text(self, actor: str, rewritten: Callable[[str], str]) -> None:
        with self._hold_lock() as (lock, copy):
            before = copy.document
            wanted = document.read_document(rewritten(before.text), previous=before)
            self._commit_text(lock, copy, before, actor, "edit", wanted)

    def restore(self, actor: str, good: Callable[[], str]) -> Restored | None:
        with self._hold_lock() as (lock, copy):
            if _parse_or_none(copy) is not None:
                return None
            kept = self._keep_broken(copy.text)
            wanted = document.read_document(good())
            self._commit_text(lock, copy, self._last_good(wanted), actor, "restore", wanted)
            return Restored(wanted.state, kept)

    def _commit_text(
        self, lock: CrewLock, copy: BoardCopy, before: Document, actor: str, event: str, wanted: Document
    ) -> None:
        check_revision(wanted.state.revision)
        if wanted.text == copy.text:
            return
        number = max(_next_revision(copy, before), wanted.state.revision + 1)
        changed = change_board(wanted, before.state, wanted.state, number)
        self._commit(lock, copy, changed, RevisionLine(number, actor=actor, event=event), full=True)

    def _last_good(self, wanted: Document) -> Document:
        """Return the newest board of the journal, for a comparison; ``wanted`` if the journal has no board."""
        newest = revision_texts.newest_text(self._lines)
        return wanted if newest is None else document.read_document(newest[1], previous=wanted)

    def _keep_broken(self, text: str) -> Path:
        stamp = format_time(self._clock.now()).replace(":", "")
        self._make_directories()
        path = self.paths.tx / f"broken-{stamp}"
        files.write_synced(path, text.encode())
        return path

    # ── the commit ───────────────────────────────────────────────────────────────────────────────────────────────

    def _commit(
        self,
        lock: CrewLock,
        copy: BoardCopy,
        changed: Document,
        line: RevisionLine | None,
        *,
        full: bool = False,
        moved: Mapping[str, str] | None = None,
    ) -> None:
        change = self._describe_change(copy, changed, line, full=full, moved=moved)
        lock.commit(change)
        self._remember(board_copy.written_copy(copy, change.after, change.writes, changed))

    def _describe_change(
        self,
        copy: BoardCopy,
        changed: Document,
        line: RevisionLine | None,
        *,
        full: bool = False,
        moved: Mapping[str, str] | None = None,
    ) -> CrewChange:
        """Return the rows to write. ``line``: of the journal; None for a heartbeat. Raises BoardInconsistent."""
        data = files.encode_board(changed.text)
        base, number = copy.numbers, copy.numbers.change + 1
        if line is None:
            is_same = base.journaled >= 0 and changed.names == copy.names
            after = CrewRow(base.revision, number, base.journaled if is_same else _NO_REVISION)
        else:
            after = CrewRow(line.revision, number, number)
            line = _complete_line(msgspec.structs.replace(line, sha256=sha(data)), copy, changed, full)
        writes = entry_rows.find_writes(copy.rows, changed)
        rows = describe_moved(moved or {})
        return CrewChange(self._crew, uuid4(), base, after, writes, line, rows)

    @contextmanager
    def _hold_lock(self) -> Iterator[tuple[CrewLock, BoardCopy]]:
        with self._one_thread():
            lock = CrewLock(self._links, self._host, self._server_time.measure)
            try:
                copy = self._remember(lock.take(self._copy))
                with lock.serve():
                    yield lock, copy
            finally:
                lock.release()
            if lock.is_committed and lock.is_notification_due:
                signal_rows.notify(self._links)

    # ── revisions and archived tasks ─────────────────────────────────────────────────────────────────────────────

    def records(self) -> Iterator[RevisionRecord]:
        for _, moment, head in self._iter_journal(_HEADS, _HEADS_AT_ONCE):
            yield msgspec.convert({**head, "time": format_time(moment)}, decodable(RevisionRecord))

    def _lines(self) -> Iterator[RevisionLine]:
        for _, moment, head, entries, text in self._iter_journal(_LINES, _LINES_AT_ONCE):
            line = {**head, "time": format_time(moment), "entries": entries or (), "text": text}
            yield msgspec.convert(line, decodable(RevisionLine))

    def _iter_journal(self, sql: str, limit: int) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of the journal, the newest first."""
        below = _NEWEST
        while rows := self._links.ask_much(sql, below=below, limit=limit):
            yield from rows
            below = rows[-1][0]

    def restore_archive(self, actor: str, recorded: Mapping[str, str]) -> RestoredArchive:
        with self._hold_lock() as (lock, copy):
            on_board = {task.id for task in copy.document.state.tasks}
            lost = self._find_lost(recorded, on_board)
            moved = {task_id: text for texts in lost.values() for task_id, text in texts.items()}
            if moved:
                self._commit(lock, copy, copy.document, None, moved=moved)
        return RestoredArchive(tuple(lost), ids=frozenset(self.archived_ids()))

    # ── signals ──────────────────────────────────────────────────────────────────────────────────────────────────

    def signals(self) -> Mapping[str, Signal]:
        signals = signal_rows.read_signals(self._links)
        self._saver.save_signals(signals)
        return signals

    def raise_signal(self, name: str, text: str = "") -> None:
        signal_rows.raise_signal(self._links, name, text)

    def clear_signal(self, name: str) -> bool:
        return signal_rows.clear_signal(self._links, name)

    def lock_signals(self, *, is_stop: bool = False) -> AbstractContextManager[bool]:
        return signal_rows.lock_signals(self._links, is_stop=is_stop)

    # ── documents ────────────────────────────────────────────────────────────────────────────────────────────────

    def pages(self) -> Mapping[str, str]:
        return dict(self._links.ask_much("SELECT name, text FROM page WHERE crew = %(crew)s"))

    def write_page(self, name: str, text: str) -> None:
        self._links.ask(_WRITE_PAGE, name=name, text=text)

    # ── watching ─────────────────────────────────────────────────────────────────────────────────────────────────

    def watch(self, extra_dirs: Iterable[Path] = ()) -> Watch:
        from liza.board.postgresql.server_watch import ServerWatch

        return ServerWatch(self.paths, extra_dirs, lambda: connect(self.address), self._crew)

    # ── hosts ────────────────────────────────────────────────────────────────────────────────────────────────────

    def hosts(self) -> HostTable:
        return self._links.use(lambda connection: HostsTable(connection, self._crew).read())

    def acts_for(self, host: str, incarnation: UUID) -> None:
        self._host = (host, incarnation)

    def take_duty(self, name: str, above: int = 0) -> int | None:
        if self._host is None:
            return None
        host, incarnation = self._host
        return self._links.use(
            lambda connection: HostsTable(connection, self._crew).take_duty(name, host, incarnation, above)
        )

    def held_agents(self) -> Mapping[str, AgentPlacement]:
        table = self._read_placements()
        return {row.agent: row for row in table.agents if table.is_held(row)}

    def lost_runs(self) -> frozenset[str]:
        table = self._read_placements()
        return frozenset(row.run for row in table.agents if row.run and table.is_lost(row))

    def _read_placements(self) -> HostTable:
        """Return the hosts as they were at most a second ago: rules ask for each agent."""
        now = time.monotonic()
        if self._placements is None or now - self._placements[0] > _HELD_SECONDS:
            self._placements = now, self.hosts()
        return self._placements[1]

    def begin_session(self, run: str) -> None:
        self._note_session(run, HostsTable.begin_session)

    def end_session(self, run: str) -> None:
        self._note_session(run, HostsTable.end_session)
        signal_rows.notify(self._links)

    def _note_session(self, run: str, note: Callable[[HostsTable, str, str, str, UUID], object]) -> None:
        if self._host is not None:
            host, incarnation = self._host
            agent, _ = split_run(run)
            self._links.use(lambda connection: note(HostsTable(connection, self._crew), agent, run, host, incarnation))

    def forget_host(self, name: str, incarnation: UUID) -> None:
        self._links.use(lambda connection: HostsTable(connection, self._crew).leave(name, incarnation))
        signal_rows.notify(self._links)

    @property
    def shared(self) -> SharedRows:
        return self._shared

    def require_files(self, action: str) -> None:
        raise Refused(f"{action} needs a board in files; this one is at {self.address.server}", "liza edit")


def _next_revision(copy: BoardCopy, before: Document | None = None) -> int:
    return 1 + max(copy.numbers.revision, (before or copy.document).state.revision)


def _complete_line(line: RevisionLine, copy: BoardCopy, changed: Document, full: bool) -> RevisionLine:
    """Return the line of the journal with the changed entries, or with the whole text if ``full`` or if it is due."""
    before, entries = copy.known_document, None
    if before is not None:
        line = with_statuses(line, before.state, changed.state)
        is_due = copy.numbers.journaled < 0 or line.revision % revision_texts.FULL_TEXT_INTERVAL == 0
        if not full and not is_due:
            entries = revision_texts.diff_entries(before, changed, tuple(copy.renewed))
    return msgspec.structs.replace(line, entries=entries or (), text=changed.text if entries is None else None)


def _parse_or_none(copy: BoardCopy) -> Document | None:
    """Return the document; None if the text cannot be read."""
    try:
        return copy.document
    except BoardTooNew:
        raise
    except BoardUnreadable:
        return None
