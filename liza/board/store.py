"""Read and transaction: the two words by which everybody meets the board."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from liza.board import commit_steps, new_violations, revision_journal, spool, write_intent
from liza.board.commit_steps import BoardPaths
from liza.board.repair import BoardRepairer, LockedBoard
from liza.board.revision_journal import RevisionRecord
from liza.board.revision_journal import format_subject as format_subject
from liza.board.spool import Spool, SpoolItem
from liza.board.text import changes, document
from liza.board.text.document import Document
from liza.board.text.values import check_revision, format_time
from liza.board.write_intent import WriteIntent, sha
from liza.rules.errors import BoardInconsistent, BoardUnreadable, LizaError, NoCrew, Refused
from liza.rules.model import Clock, State, Violation
from liza.rules.paths import Paths
from liza.system import files
from liza.system.file_lock import Lock

_MAX_LOCKLESS_READS: Final = 4
"""Reads without the lock before a board that does not fit its seal is read under it."""


@dataclass(frozen=True)
class Alert:
    """Something that a person must know. ``kind`` is a word, ``message`` a sentence."""

    kind: str
    message: str
    time: datetime


@dataclass(frozen=True)
class Restored:
    """The board that came back, as it was, and where the one that could not be read is kept, if there was one."""

    state: State
    broken_copy: Path | None


@dataclass
class Transaction:
    """A change under the lock: ``state`` starts as ``before``; what it is at the end is written."""

    before: State
    state: State
    revision: int | None = field(default=None, init=False)
    """The revision that the change became; None while it is not written, or when nothing changed."""


class Board:
    """The board of one crew. One thread at a time is in a transaction; another waits."""

    def __init__(self, paths: Paths, clock: Clock, trusted: Callable[[State], State] = lambda state: state) -> None:
        """``trusted`` gives a board that was read the settings that count; see ``rules.settings``."""
        self.paths = paths
        self._with_effective_settings = trusted
        self._board_paths = BoardPaths(paths)
        self.spool = Spool(paths.spool)
        self._clock = clock
        self._lock: Lock | None = None
        self._repairer = BoardRepairer(paths, clock, self.spool)
        self._owner: int | None = None
        self._thread_lock = threading.Lock()
        self._newest_read = 0

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self) -> State:
        """The board as it is now, with the settings that count. Raises what ``as_written`` raises."""
        return self._with_effective_settings(self.read_as_written())

    def read_as_written(self) -> State:
        """The board as it is now, without the lock unless it is in doubt.

        Raises NoCrew, BoardUnreadable, BoardTooNew, BoardInconsistent, and LockTimeout."""
        self._require_crew()
        for _ in range(_MAX_LOCKLESS_READS):
            data = self._repairer.read_bytes()
            sealed = write_intent.read_intent(self._board_paths.intent)
            digest = self._repairer.hash_bytes(data)
            if sealed is None or (digest != sealed.after and not self._repairer.is_untouched(sealed, digest)):
                continue
            known = self._repairer.parse_bytes(data)
            if known.state.revision >= self._newest_read:
                self._newest_read = known.state.revision
                return known.state
        if self._owner == threading.get_ident():
            raise BoardInconsistent("the board changed under its lock", "liza doctor")
        with self._lock_and_repair() as standing:
            self._newest_read = standing.document.state.revision
            return standing.document.state

    def read_text(self) -> str:
        """The text as it is, whatever it is. Raises NoCrew."""
        self._require_crew()
        return self._repairer.read_bytes().decode("utf-8", errors="replace")

    def take_alerts(self) -> list[Alert]:
        """What was settled since the last call and a person must know; the journal keeps it too."""
        found, self._repairer.alerts = self._repairer.alerts, []
        return [Alert(kind, message, time) for kind, message, time in found]

    def last_good_text(self) -> str:
        """The newest text that is known to have been the board. Raises BoardInconsistent where none is kept here."""
        records = list(revision_journal.iter_newest_first(self._board_paths.journal))
        shas = {record.sha256 for record in records}
        # The end of the journal may be gone as well: the seal tells how far the board had come.
        sealed = write_intent.read_intent(self._board_paths.intent)
        unsaid = range(records[0].revision + 1 if records else 1, sealed.revision + 1 if sealed else 0)
        found = [known for known in self.spool.rebuild_texts() if known[0] in unsaid or sha(known[1].encode()) in shas]
        spare = self._repairer.previous_document()
        if spare is not None:
            found.append((spare.state.revision, spare.text))
        if not found:
            raise BoardInconsistent("no earlier board is kept beside this one", "git log -p liza/blackboard")
        return max(found, key=lambda known: known[0])[1]

    def unknown_config(self) -> tuple[str, ...]:
        """Keys of ``config:`` that no rule reads."""
        return document.find_unknown_config(self.read_text())

    # ── changing ─────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def transaction(self, actor: str, event: str, *, task: str | None = None) -> Iterator[Transaction]:
        """A change, all or nothing: what ``tx.state`` is at the end becomes the next revision.

        Raises BoardInconsistent where the change adds a violation, LockTimeout, and what ``read`` raises. An exception
        inside writes nothing.
        """
        with self._lock_and_repair() as standing:
            before = standing.document.state
            tx = Transaction(before, before)
            yield tx
            if tx.state is before or tx.state == before:
                return
            number = self._next_revision(standing)
            after = msgspec.structs.replace(tx.state, version=before.version, revision=number)
            self._refuse_new_violations(before, after)
            made = changes.change_document(standing.document, after)
            self._commit(standing, made, RevisionRecord(number, actor=actor, event=event, task=task))
            tx.state, tx.revision = made.state, number

    @contextmanager
    def heartbeat(self, actor: str) -> Iterator[Transaction]:
        """A heartbeat: written and sealed, but no revision, and nothing of it in the journal and the spool.

        ``actor`` is who renews. Raises what ``transaction`` raises; entries may not come or go.
        """
        with self._lock_and_repair() as standing:
            before = standing.document.state
            tx = Transaction(before, before)
            yield tx
            if tx.state is before or tx.state == before:
                return
            after = msgspec.structs.replace(tx.state, version=before.version, revision=before.revision)
            self._refuse_new_violations(before, after)
            made = changes.change_document(standing.document, after)
            tx.state = made.state
            touched = spool.diff_entries(standing.document, made, ())
            names = {(one.section, one.key) for one in touched} if touched is not None else {("", "")}
            data = files.encode_board(made.text)
            old = standing.intent
            fresh = WriteIntent(
                old.revision, standing.digest, sha(data), tuple(sorted({*old.renewed, *names})), old.renewed
            )
            commit_steps.record_intent(self._board_paths, fresh)
            self._write_board(made, data, fresh)

    def create(self, text: str, above: int = 0) -> None:
        """The first board of a crew, numbered ``above`` what a history that is there already has come to.

        Raises Refused where there is a board, BoardInconsistent where it breaks a rule.
        """
        self._make_directories()
        with self._one_thread(), self._hold_lock():
            if self._board_paths.state.exists():
                raise Refused(f"{self._board_paths.state} is there already", "liza status")
            self._repairer.void_failed_creation()
            known = document.read_document(text)
            number = 1 + max(above, revision_journal.highest_revision(self._board_paths.journal))
            check_revision(number)
            if known.state.revision != number:
                known = changes.change_document(known, msgspec.structs.replace(known.state, revision=number))
            _raise_if_any(new_violations.find_all(known.state))
            nothing = LockedBoard(known, b"", "", WriteIntent(0, "", ""))
            self._commit(nothing, known, RevisionRecord(number, actor="human", event="init"), full=True)

    def replace_text(self, actor: str, text: str, event: str = "edit") -> None:
        """The whole text anew, as ``edit`` has it: judged like an edit from outside, but refused when it adds a
        violation. A board that could not be read is kept beside the new one first."""
        self._require_crew()
        with self._one_thread():
            try:
                with self._repairer.lock_and_repair(self._hold_lock) as standing:
                    self._commit_text(standing, actor, event, text)
                return
            except BoardInconsistent as wrong:
                self._refuse_unless_broken(wrong)
            with self._hold_lock():
                self._replace_broken(actor, event, text)

    def restore(self, actor: str, good: Callable[[], str]) -> Restored | None:
        """``good`` in the place of a board that is gone, cannot be read or has lost its end; that one is kept.

        None where there was no need of it, judged under the lock: what somebody else has mended meanwhile stays.
        """
        self._make_directories()
        with self._one_thread():
            try:
                with self._repairer.lock_and_repair(self._hold_lock):
                    return None
            except BoardInconsistent as wrong:
                self._refuse_unless_broken(wrong)
            with self._hold_lock():
                try:
                    self._repairer.repair(accepted=True, patient=False)
                except BoardInconsistent:
                    text = good()
                    return Restored(document.read_document(text).state, self._replace_broken(actor, "restore", text))
                return None

    def _refuse_unless_broken(self, wrong: LizaError) -> None:
        if not isinstance(wrong, BoardUnreadable) and not self._repairer.is_truncated:
            raise wrong

    def _replace_broken(self, actor: str, event: str, text: str) -> Path | None:
        wanted = document.read_document(text)
        stamp = format_time(self._clock.now()).replace(":", "")
        self._repairer.void_failed_replacement()
        kept = files.preserve_file(self._board_paths.state, self._board_paths.tx, f"broken-{stamp}")
        self._commit_text(self._repairer.substitute_good(self._repairer.newest_known() or wanted), actor, event, text)
        return kept

    def transform_text(self, actor: str, rewritten: Callable[[str], str], event: str = "edit") -> None:
        """As ``replace_text``, of what ``rewritten`` makes of the text under the lock. If it raises, nothing."""
        with self._lock_and_repair() as standing:
            self._commit_text(standing, actor, event, rewritten(standing.document.text))

    def _commit_text(self, standing: LockedBoard, actor: str, event: str, text: str) -> None:
        wanted = document.read_document(text)
        check_revision(wanted.state.revision)
        before = standing.document.state
        if files.encode_board(wanted.text) == standing.data:
            return
        number = max(self._next_revision(standing), wanted.state.revision + 1)
        after = msgspec.structs.replace(wanted.state, revision=number)
        self._refuse_new_violations(before, after)
        made = changes.change_document(wanted, after)
        self._commit(standing, made, RevisionRecord(number, actor=actor, event=event), full=True)

    # ── the steps ────────────────────────────────────────────────────────────────────────────────────────────────

    def _commit(self, standing: LockedBoard, made: Document, record: RevisionRecord, full: bool = False) -> None:
        """Everything that makes a revision, in the order that can be settled after a crash at any point."""
        data = files.encode_board(made.text)
        record = msgspec.structs.replace(record, time=format_time(self._clock.now()), sha256=sha(data))
        record = revision_journal.with_statuses(record, standing.document.state, made.state)
        renewed = standing.intent.renewed
        entries = None
        chained = self.spool.is_complete_after(standing.document.state.revision)
        if not full and chained and record.revision % spool.FULL_TEXT_INTERVAL and ("", "") not in renewed:
            entries = spool.diff_entries(standing.document, made, renewed)
        item = SpoolItem(
            record.revision,
            revision_journal.format_subject(record),
            record.actor,
            record.time,
            record.sha256,
            entries or (),
            None if entries is not None else made.text,
        )
        fresh = WriteIntent(record.revision, standing.digest, record.sha256, (), renewed)
        commit_steps.write_journal(self._board_paths, record)
        commit_steps.record_intent(self._board_paths, fresh)
        commit_steps.write_spool(self.spool, item)
        self._write_board(made, data, fresh)
        self._newest_read = max(self._newest_read, record.revision)

    def _write_board(self, made: Document, data: bytes, fresh: WriteIntent) -> None:
        aside = commit_steps.write_next_board(self._board_paths, data)
        commit_steps.rename_board(self._board_paths, aside)
        commit_steps.fsync_directory(self._board_paths)
        self._repairer.remember(data, fresh.after, made)

    def _next_revision(self, standing: LockedBoard) -> int:
        return 1 + max(
            standing.document.state.revision,
            standing.intent.revision,
            revision_journal.highest_revision(self._board_paths.journal),
        )

    def _refuse_new_violations(self, before: State, after: State) -> None:
        _raise_if_any(new_violations.find_added(before, after))

    @files.convert_os_errors()
    def _make_directories(self) -> None:
        for directory in (self.paths.liza, self._board_paths.tx, self.paths.spool, self.paths.locks):
            directory.mkdir(parents=True, exist_ok=True)

    # ── the lock ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _require_crew(self) -> None:
        if not self._board_paths.liza.is_dir() or not (
            self._board_paths.state.exists() or self._board_paths.intent.exists()
        ):
            raise NoCrew(f"there is no board at {self._board_paths.state}", "liza init GOAL")

    @contextmanager
    def _one_thread(self) -> Iterator[None]:
        """The turn of this thread among those that share this object."""
        if self._owner == threading.get_ident():
            raise RuntimeError("a transaction inside a transaction")
        with self._thread_lock:
            self._owner = threading.get_ident()
            try:
                yield
            finally:
                self._owner = None

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        if self._lock is None:
            self._lock = Lock(self.paths.state_lock)
        with self._lock:
            yield

    @contextmanager
    def _lock_and_repair(self) -> Iterator[LockedBoard]:
        """The board under its lock, with everything settled that was left."""
        self._require_crew()
        with self._one_thread(), self._repairer.lock_and_repair(self._hold_lock) as standing:
            yield standing


def _raise_if_any(violations: tuple[Violation, ...]) -> None:
    if violations:
        more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
        raise BoardInconsistent(f"{violations[0]}{more}; nothing was written", "liza validate")
