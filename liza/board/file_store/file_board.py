"""Read the board, and change it in a transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec

from liza.board import revision_texts, revisions
from liza.board.contract import Alert, Restored, RestoredArchive, Transaction
from liza.board.events import Watch
from liza.board.file_store import archive_files, commit_steps, revision_journal, signal_files, write_intent
from liza.board.file_store.archive_files import ArchiveFiles
from liza.board.file_store.repair import BoardRepairer, LockedBoard
from liza.board.file_store.write_intent import WriteIntent
from liza.board.revisions import RevisionLine, RevisionRecord, sha
from liza.board.rules.host_leases import AgentPlacement
from liza.board.signals import Signal
from liza.board.stored_board import begin_board, change_board
from liza.board.text import document
from liza.board.text.document import Document
from liza.board.text.values import check_revision
from liza.model.errors import BoardInconsistent, BoardUnreadable, LizaError, NoCrew, Refused
from liza.model.model import Clock, State
from liza.model.paths import Paths
from liza.system import ancestors, files
from liza.system.locks import Lock
from liza.text.formats import format_time

_MAX_LOCKLESS_READS: Final = 4
"""Reads without the lock; if none matches the write intent, the board is read under the lock."""


class FileBoard(ArchiveFiles):
    """The board in `.liza/state.yaml`. Only one thread at a time is in a transaction; the others wait."""

    def __init__(self, paths: Paths, clock: Clock, trusted: Callable[[State], State] = lambda state: state) -> None:
        """``trusted`` replaces the settings of a board that was read by the effective ones; see ``rules.settings``."""
        super().__init__(paths, trusted)
        self._clock = clock
        self._lock: Lock | None = None
        self._repairer = BoardRepairer(paths, clock)
        self._newest_read = 0

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def read_as_written(self) -> State:
        """Return the board as the file says it, settings included. Take the lock only if the file does not match
        the write intent.

        Raises NoCrew, BoardUnreadable, BoardTooNew, BoardInconsistent, LockTimeout.
        """
        self._require_crew()
        for _ in range(_MAX_LOCKLESS_READS):
            # A writer saves the intent before it renames the board, so a mismatch is usually a commit in progress.
            data = self._repairer.read_bytes()
            intent = write_intent.read_intent(self.paths.write_intent)
            digest = self._repairer.hash_bytes(data)
            if intent is None or (digest != intent.after and not self._repairer.is_untouched(intent, digest)):
                continue
            document_read = self._repairer.parse_bytes(data, digest)
            if document_read.state.revision >= self._newest_read:
                self._newest_read = document_read.state.revision
                return document_read.state
        if self._owner == threading.get_ident():
            raise BoardInconsistent("the board changed under its lock", "liza doctor")
        with self._lock_and_repair() as locked:
            self._newest_read = locked.document.state.revision
            return locked.document.state

    def read_text(self) -> str:
        self._require_crew()
        return self._repairer.read_bytes().decode("utf-8", errors="replace")

    def take_alerts(self) -> list[Alert]:
        alerts, self._repairer.alerts = self._repairer.alerts, []
        return [Alert(kind, message, time) for kind, message, time in alerts]

    def unknown_config(self) -> tuple[str, ...]:
        self.read_as_written()
        return document.find_unknown_config(self._repairer.parse_bytes(self._repairer.read_bytes()))

    # ── changing ─────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def transaction(self, actor: str, event: str, *, task: str | None = None) -> Iterator[Transaction]:
        with self._lock_and_repair() as locked:
            before = locked.document.state
            tx = Transaction(before, before, locked.document, task)
            yield tx
            if tx.state is before or tx.state == before:
                return
            number = self._next_revision(locked)
            changed = change_board(locked.document, before, tx.state, number)
            line = RevisionLine(number, actor=actor, event=event, task=tx.task)
            if tx.moved:
                self._commit_move(locked, changed, line, tx.moved)
            else:
                self._commit(locked, changed, line)
            tx.state, tx.revision = changed.state, number

    @contextmanager
    def heartbeat(self, actor: str) -> Iterator[Transaction]:
        with self._lock_and_repair() as locked:
            before = locked.document.state
            tx = Transaction(before, before, locked.document)
            yield tx
            if tx.state is before or tx.state == before:
                return
            changed = change_board(locked.document, before, tx.state, before.revision)
            tx.state = changed.state
            entries = revision_texts.diff_entries(locked.document, changed, ())
            renewed = {(entry.section, entry.key) for entry in entries} if entries is not None else {("", "")}
            data = files.encode_board(changed.text)
            old_intent = locked.intent
            intent = WriteIntent(
                old_intent.revision,
                locked.digest,
                sha(data),
                tuple(sorted({*old_intent.renewed, *renewed})),
                old_intent.renewed,
            )
            commit_steps.commit(self.paths, data, intent)
            self._repairer.remember(data, intent.after, changed)

    def create(self, text: str, above: int = 0) -> None:
        self._make_directories()
        with self._one_thread(), self._hold_lock():
            if self.paths.state.exists():
                raise Refused(f"{self.paths.state} exists already", "liza status")
            self._repairer.void_uncommitted()
            number = 1 + max(above, revision_journal.highest_revision(self.paths.journal))
            first = begin_board(text, number)
            no_board = LockedBoard(first, b"", "", WriteIntent(0, "", ""))
            self._commit(no_board, first, RevisionLine(number, actor="human", event="init"), full=True)

    def replace_text(self, actor: str, text: str, event: str = "edit") -> None:
        """Replace the whole text, as ``edit`` does. Unlike an edit from outside, it is refused if it adds a violation.

        If the board is unreadable, a copy of it is kept first. Raises BoardInconsistent, LockTimeout.
        """
        self._require_crew()
        with self._one_thread():
            try:
                with self._repairer.lock_and_repair(self._hold_lock) as locked:
                    self._commit_text(locked, actor, event, text)
                return
            except BoardInconsistent as error:
                self._refuse_unless_broken(error)
            with self._hold_lock():
                self._replace_broken(actor, event, text)

    def restore(self, actor: str, good: Callable[[], str]) -> Restored | None:
        """Write ``good()`` if the board is missing, unreadable or truncated, and keep a copy of the broken file.

        Return None if the board is valid. This is decided under the lock, so a repair by another process stays.
        """
        self._make_directories()
        with self._one_thread():
            try:
                with self._repairer.lock_and_repair(self._hold_lock):
                    return None
            except BoardInconsistent as error:
                self._refuse_unless_broken(error)
            with self._hold_lock():
                try:
                    self._repairer.repair(accepted=True, patient=False)
                except BoardInconsistent:
                    self._repairer.void_uncommitted()
                    text = good()
                    return Restored(document.read_document(text).state, self._replace_broken(actor, "restore", text))
                return None

    def _refuse_unless_broken(self, error: LizaError) -> None:
        if not isinstance(error, BoardUnreadable) and not self._repairer.is_truncated:
            raise error

    def _replace_broken(self, actor: str, event: str, text: str) -> Path | None:
        wanted = document.read_document(text)
        stamp = format_time(self._clock.now()).replace(":", "")
        self._repairer.void_uncommitted()
        copy = files.preserve_file(self.paths.state, self.paths.tx, f"broken-{stamp}")
        self._commit_text(self._repairer.substitute_good(self._repairer.newest_known() or wanted), actor, event, text)
        return copy

    def transform_text(self, actor: str, rewritten: Callable[[str], str]) -> None:
        with self._lock_and_repair() as locked:
            self._commit_text(locked, actor, "edit", rewritten(locked.document.text))

    def _commit_text(self, locked: LockedBoard, actor: str, event: str, text: str) -> None:
        wanted = document.read_document(text)
        check_revision(wanted.state.revision)
        before = locked.document.state
        if files.encode_board(wanted.text) == locked.data:
            return
        number = max(self._next_revision(locked), wanted.state.revision + 1)
        changed = change_board(wanted, before, wanted.state, number)
        self._commit(locked, changed, RevisionLine(number, actor=actor, event=event), full=True)

    # ── revisions and archived tasks ──────────────────────────────────────────────────────────────────────────────

    def records(self) -> Iterator[RevisionRecord]:
        return revision_journal.iter_newest_first(self.paths.journal)

    def _lines(self) -> Iterator[RevisionLine]:
        return revision_journal.iter_lines(self.paths.journal)

    def restore_archive(self, actor: str, recorded: Mapping[str, str]) -> RestoredArchive:
        archive_files.refuse_link(self.paths)
        with self.transaction(actor, "restore") as tx:
            on_board = {task.id for task in tx.before.tasks}
            return archive_files.restore_entries(self.paths, recorded, on_board, self._clock.now())

    # ── signals ──────────────────────────────────────────────────────────────────────────────────────────────────

    def signals(self) -> Mapping[str, Signal]:
        return signal_files.read_signals(self.paths)

    def raise_signal(self, name: str, text: str = "") -> None:
        signal_files.raise_signal(self.paths, name, text)

    def clear_signal(self, name: str) -> bool:
        return signal_files.clear_signal(self.paths, name)

    def lock_signals(self, *, is_stop: bool = False) -> AbstractContextManager[bool]:
        return signal_files.lock_signals(self.paths, is_stop=is_stop)

    # ── documents ────────────────────────────────────────────────────────────────────────────────────────────────

    def pages(self) -> Mapping[str, str]:
        return {}

    def write_page(self, name: str, text: str) -> None:
        """Return: the file is all there is."""

    # ── watching ─────────────────────────────────────────────────────────────────────────────────────────────────

    def watch(self, extra_dirs: Iterable[Path] = ()) -> Watch:
        from liza.board.directory_watch import DirectoryWatch

        return DirectoryWatch(self.paths, extra_dirs)

    # ── hosts ────────────────────────────────────────────────────────────────────────────────────────────────────

    def hosts(self) -> None:
        return None

    def acts_for(self, host: str, incarnation: UUID) -> None:
        """A board in files is on one host, which needs no lease."""

    def forget_host(self, name: str, incarnation: UUID) -> None:
        """No other host works on a board in files."""

    def take_duty(self, name: str, above: int = 0) -> int | None:
        return 0

    def held_agents(self) -> Mapping[str, AgentPlacement]:
        return {}

    def lost_runs(self) -> frozenset[str]:
        return frozenset()

    def begin_session(self, run: str) -> None:
        """There is no other host."""

    def end_session(self, run: str) -> None:
        """There is no other host."""

    def require_files(self, action: str) -> None:
        """Return: the board is in files."""

    # ── the commit ────────────────────────────────────────────────────────────────────────────────────────────────

    def _commit(self, locked: LockedBoard, changed: Document, line: RevisionLine, full: bool = False) -> None:
        """Write one revision. The order of the steps lets ``repair`` complete or undo it after a crash at any point."""
        data = files.encode_board(changed.text)
        line = msgspec.structs.replace(line, time=format_time(self._clock.now()), sha256=sha(data))
        line = revisions.with_statuses(line, locked.document.state, changed.state)
        renewed = locked.intent.renewed
        entries = None  # None: the line has the whole text
        is_next = locked.journaled == locked.document.state.revision
        if not full and is_next and line.revision % revision_texts.FULL_TEXT_INTERVAL and ("", "") not in renewed:
            entries = revision_texts.diff_entries(locked.document, changed, renewed)
        line = msgspec.structs.replace(line, entries=entries or (), text=changed.text if entries is None else None)
        intent = WriteIntent(line.revision, locked.digest, line.sha256, (), renewed)
        commit_steps.rotate_journal(self.paths, line.revision)
        commit_steps.commit(self.paths, data, intent, line)
        self._repairer.remember(data, intent.after, changed)
        self._newest_read = max(self._newest_read, line.revision)

    def _commit_move(
        self, locked: LockedBoard, changed: Document, line: RevisionLine, moved: Mapping[str, str]
    ) -> None:
        """Append entries to the archive, then write the revision without them."""
        length = sum(len(text.encode()) for text in moved.values())
        name = archive_files.choose_name(self.paths, self._clock.now(), length)
        archive_files.append_entries(self.paths, name, moved)
        self._commit(locked, changed, msgspec.structs.replace(line, archived=tuple(moved)))

    def _next_revision(self, locked: LockedBoard) -> int:
        return 1 + max(
            locked.document.state.revision,
            locked.intent.revision,
            revision_journal.highest_revision(self.paths.journal),
        )

    # ── the lock ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _require_crew(self) -> None:
        if not self.paths.liza.is_dir() or not (self.paths.state.exists() or self.paths.write_intent.exists()):
            if ancestors.is_without_board():
                raise NoCrew("the box of `liza confine` shows no board: type this outside of it", "liza confine --help")
            raise NoCrew(f"{self.paths.state} is gone", document.RESTORE_COMMAND)

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        if self._lock is None:
            self._lock = Lock(self.paths.state_lock)
        with self._lock:
            yield

    @contextmanager
    def _lock_and_repair(self) -> Iterator[LockedBoard]:
        """Take the lock, repair what crashes and edits from outside left, and return the board."""
        self._require_crew()
        with self._one_thread(), self._repairer.lock_and_repair(self._hold_lock) as locked:
            yield locked
