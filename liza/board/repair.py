"""The start of a transaction: what was left by a crash or by an edit from outside is settled before anything else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from liza.board import commit_steps, new_violations, outside_edits, revision_journal, spool, write_intent
from liza.board.commit_steps import BoardPaths
from liza.board.revision_journal import RevisionRecord
from liza.board.spool import Spool, SpoolItem
from liza.board.text import changes, document
from liza.board.text.document import RESTORE_COMMAND, Document
from liza.board.text.values import check_revision, format_time
from liza.board.write_intent import WriteIntent, sha
from liza.rules.errors import BoardInconsistent, BoardTooNew, BoardUnreadable, LizaError
from liza.rules.model import Clock, State
from liza.rules.paths import Paths
from liza.system import files

STABLE_SECONDS: Final = 0.5
"""Seconds for which size, time and sha of an edited board must stand still before it counts."""
_STABLE_TIMEOUT: Final = 10.0
_TORN_READS: Final = 2
_RECENT_SECONDS: Final = 2.0
"""Seconds after its last change in which a board that is broken or short may still be on its way."""


@dataclass(frozen=True)
class LockedBoard:
    """The board under its lock: what it means, its bytes' sha, and the seal that fits it."""

    document: Document
    data: bytes
    digest: str
    intent: WriteIntent


class _StillChanging(Exception):
    """An edit from outside that may still be going on."""


class BoardRepairer:
    """Reads the board, remembers what it read, and settles what it finds under the lock."""

    def __init__(self, paths: Paths, clock: Clock, spool: Spool) -> None:
        self._board_paths, self._clock, self._spool = BoardPaths(paths), clock, spool
        self._data, self._digest = b"", ""
        self._document: Document | None = None
        self.alerts: list[tuple[str, str, datetime]] = []
        self.is_truncated = False
        """Whether the last reading under the lock found a board whose end is missing."""

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def read_bytes(self) -> bytes:
        """The bytes of the board. Raises BoardUnreadable where there are none."""
        try:
            return files.read_limited(self._board_paths.state, files.MAX_BOARD_SIZE)
        except FileNotFoundError:
            raise BoardUnreadable(f"{document.BOARD_NAME} is gone", RESTORE_COMMAND) from None
        except OSError as error:
            raise BoardUnreadable(f"{document.BOARD_NAME}: {error.strerror}", RESTORE_COMMAND) from None

    def hash_bytes(self, data: bytes) -> str:
        """The sha256 of bytes; free for those that were read last."""
        return self._digest if self._document is not None and data == self._data else sha(data)

    def parse_bytes(self, data: bytes) -> Document:
        """What bytes mean, parsing what is new in them only. Raises BoardUnreadable, BoardTooNew."""
        if self._document is not None and data == self._data:
            return self._document
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise BoardUnreadable(f"{document.BOARD_NAME}:{line}: not UTF-8: {error.reason}", RESTORE_COMMAND) from None
        made = document.read_document(text, known=self._document)
        self.remember(data, sha(data), made)
        return made

    def remember(self, data: bytes, digest: str, made: Document) -> None:
        """Keeps what the newest bytes mean."""
        self._data, self._digest, self._document = data, digest, made

    # ── under the lock ───────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def lock_and_repair(self, held: Callable[[], AbstractContextManager[None]]) -> Iterator[LockedBoard]:
        """The settled board with the lock held; while an edit settles down, the lock is let go."""
        seen: tuple[int, int, str] | None = None
        torn = 0
        limit = time.monotonic() + _STABLE_TIMEOUT
        while True:
            with held():
                found = self._fingerprint()
                try:
                    self.is_truncated = False
                    age = time.time() - found[1] / 1e9
                    # A slow writer stands still as well, and is not done.
                    still = (found == seen or age > STABLE_SECONDS) and not files.is_being_written(
                        self._board_paths.state
                    )
                    standing = self.repair(accepted=still, patient=torn < _TORN_READS and age < _RECENT_SECONDS)
                except _StillChanging as unsettled:
                    torn += bool(unsettled.args)
                else:
                    yield standing
                    return
            if time.monotonic() > limit:
                raise BoardInconsistent(f"{document.BOARD_NAME} keeps changing outside its lock", "liza lock -- CMD")
            seen = found
            time.sleep(STABLE_SECONDS)  # stillness is a time, and no event tells it

    @files.convert_os_errors()
    def _fingerprint(self) -> tuple[int, int, str]:
        data = self.read_bytes()
        stat = self._board_paths.state.stat()
        return stat.st_size, stat.st_mtime_ns, self.hash_bytes(data)

    @files.convert_os_errors()
    def repair(self, accepted: bool, patient: bool) -> LockedBoard:
        """The board after settling. Raises BoardUnreadable, BoardTooNew, BoardInconsistent, and _Unsettled."""
        data = self.read_bytes()
        digest = self.hash_bytes(data)
        sealed = write_intent.read_intent(self._board_paths.intent)
        last = revision_journal.last_record(self._board_paths.journal)
        if last is not None and last.sha256 == digest and (sealed is None or sealed.revision < last.revision):
            # The journal is on the disk before the board is; after a power cut seal and spool may lag behind both.
            sealed = WriteIntent(last.revision, digest, digest, spool.UNKNOWN_RENEWED)
            commit_steps.record_intent(self._board_paths, sealed)
        if sealed is not None and digest == sealed.after:
            if last is not None and last.revision > sealed.revision:
                self._void(last)
            return LockedBoard(self.parse_bytes(data), data, digest, sealed)
        if sealed is not None and self.is_untouched(sealed, digest):
            found = self.parse_bytes(data)
            # What never came to be may also have been a heartbeat, whose seal bears the revision that it left standing.
            if last is not None and last.revision > found.state.revision:
                self._void(last)
            sealed = sealed.rolled_back()
            commit_steps.record_intent(self._board_paths, sealed)
            return LockedBoard(found, data, digest, sealed)
        if not accepted:
            raise _StillChanging
        return self._accept_edit(data, digest, sealed, last, patient)

    def is_untouched(self, sealed: WriteIntent, digest: str) -> bool:
        """Whether the board is still the very file that the last writer found: its change never came to be."""
        same_file = sealed.stood is None or sealed.stood == write_intent.file_stamp(self._board_paths.state)
        return digest == sealed.before and same_file

    def void_failed_creation(self) -> None:
        """A first board that a crash kept from coming to be leaves nothing that counts."""
        sealed, last = (
            write_intent.read_intent(self._board_paths.intent),
            revision_journal.last_record(self._board_paths.journal),
        )
        if last is not None and (sealed is None or not sealed.before):
            self._void(last)

    def _void(self, record: RevisionRecord) -> None:
        """A revision that was announced and never came to be."""
        # First out of the spool: once the void is written nobody looks for it there, and it would go into history.
        self._spool.remove_revision(record.revision)
        revision_journal.append_record(
            self._board_paths.journal, RevisionRecord(void=record.revision, time=format_time(self._clock.now()))
        )

    def newest_known(self) -> Document | None:
        """The newest board that is known to have been one: remembered, or rebuilt from the spool."""
        return self._newest_of(self._document)

    def _newest_of(self, remembered: Document | None) -> Document | None:
        newest = remembered
        texts = [text for _, text in self._spool.rebuild_texts()][-1:]
        if texts:
            kept = document.read_document(texts[0], known=newest)
            if newest is None or kept.state.revision > newest.state.revision:
                newest = kept
        spare = self.previous_document(newest)
        if spare is not None and (newest is None or spare.state.revision > newest.state.revision):
            newest = spare
        return newest

    def previous_document(self, known: Document | None = None) -> Document | None:
        """The board before the last change, where its bytes are those that the last writer found."""
        text, sealed = self._spool.read_previous(), write_intent.read_intent(self._board_paths.intent)
        if text is None or sealed is None or sha(text.encode()) != sealed.before:
            return None
        try:
            return document.read_document(text, known=known)
        except LizaError:
            return None

    def void_failed_replacement(self) -> None:
        """A change that could not take the place of a board that cannot be read never came to be."""
        sealed, last = (
            write_intent.read_intent(self._board_paths.intent),
            revision_journal.last_record(self._board_paths.journal),
        )
        if last is not None and (self._is_uncommitted(sealed, last) or not self._spool.has_revision(last.revision)):
            self._void(last)

    def substitute_good(self, good: Document) -> LockedBoard:
        """A board that cannot be read, standing as the last good one."""
        try:
            data = self.read_bytes()
        except BoardUnreadable:
            data = b""
        sealed = write_intent.read_intent(self._board_paths.intent) or WriteIntent(0, "", "")
        # Not the sha of these bytes: a seal that names them as what came before would have them count, should the
        # disk refuse what is to take their place.
        return LockedBoard(good, data, sealed.before, sealed)

    # ── an edit from outside ─────────────────────────────────────────────────────────────────────────────────────

    def _accept_edit(
        self, data: bytes, digest: str, sealed: WriteIntent | None, last: RevisionRecord | None, patient: bool
    ) -> LockedBoard:
        remembered = (self._data, self._digest, self._document)
        try:
            found = self.parse_bytes(data)
            check_revision(found.state.revision)
        except BoardTooNew:
            raise
        except LizaError:
            self._data, self._digest, self._document = remembered
            if patient:
                raise _StillChanging("broken") from None
            raise
        if last is not None and found.state.revision < last.revision and self._is_uncommitted(sealed, last):
            self._void(last)
        known = self._newest_of(remembered[2])
        if known is not None and self._is_edit_truncated(known, found, digest):
            self._data, self._digest, self._document = remembered
            if patient:
                raise _StillChanging("torn")
            raise self._truncation_error(known, found)
        return self._record_edit(found, known, sealed)

    def _is_edit_truncated(self, known: Document, found: Document, digest: str) -> bool:
        """Whether the end of an edit is missing: of the newest board, or of an old copy, which is whole where the
        journal knows its bytes."""
        if found.state.revision >= known.state.revision:
            return outside_edits.is_truncated(known, found)
        for record in revision_journal.iter_newest_first(self._board_paths.journal):
            if record.revision == found.state.revision and record.sha256 == digest:
                return False
            if record.revision < found.state.revision:
                break
        return outside_edits.is_old_copy_truncated(self._edited_base(found, known), known, found)

    def _edited_base(self, found: Document, known: Document) -> Document | None:
        """The board that an old copy was made of, where it still waits in the spool."""
        for revision, text in self._spool.rebuild_texts():
            if revision == found.state.revision:
                return document.read_document(text, known=known)
        return None

    def _is_uncommitted(self, sealed: WriteIntent | None, last: RevisionRecord) -> bool:
        """Whether a kill kept the newest revision of the journal from the board that was then edited, or from being
        the settlement of that very edit."""
        if sealed is None:
            return all(revision != last.revision for revision, _ in self._spool.rebuild_texts())
        here = write_intent.file_stamp(self._board_paths.state)
        return last.revision > sealed.revision or (last.revision == sealed.revision and sealed.stood == here)

    def _truncation_error(self, known: Document, found: Document) -> BoardInconsistent:
        gone = len(known.parts) - len(found.parts)
        lost = f"{gone} entries" if gone > 0 else "part of the last entry"
        message = f"the end of {document.BOARD_NAME} is missing ({lost}); nothing is written until it is back"
        self.is_truncated = True
        self.alerts.append(("torn", message, self._clock.now()))
        return BoardInconsistent(message, RESTORE_COMMAND)

    def _record_edit(self, found: Document, known: Document | None, sealed: WriteIntent | None) -> LockedBoard:
        """Gives an edit its number, its entry in the journal and its place in the spool."""
        highest = revision_journal.highest_revision(self._board_paths.journal)
        number = 1 + max(found.state.revision, sealed.revision if sealed else 0, highest)
        wanted, overwrote = self._merge_edit(found, known)
        made = changes.change_document(found, msgspec.structs.replace(wanted, revision=number))
        messages = self._describe_edit(known, made, overwrote)
        data = files.encode_board(made.text)
        record = RevisionRecord(
            number,
            format_time(self._clock.now()),
            "outside",
            "external_edit",
            sha256=sha(data),
            diff=outside_edits.diff_texts(known.text if known else "", made.text),
            alerts=messages,
            overwrote=overwrote,
        )
        # Not the bytes of the edit: a kill must leave them as an edit, to be judged and numbered again.
        fresh = WriteIntent(number, sealed.after if sealed else "", record.sha256)
        commit_steps.write_journal(self._board_paths, record)
        commit_steps.record_intent(self._board_paths, fresh)
        item = SpoolItem(number, "external edit (outside)", "outside", record.time, record.sha256, full=made.text)
        commit_steps.write_spool(self._spool, item)
        commit_steps.rename_board(self._board_paths, commit_steps.write_next_board(self._board_paths, data))
        commit_steps.fsync_directory(self._board_paths)
        self.remember(data, record.sha256, made)
        now = self._clock.now()
        self.alerts.append(("external_edit", f"revision {number} was made outside liza", now))
        self.alerts += [("overwritten" if overwrote else "external_edit", message, now) for message in messages]
        return LockedBoard(made, data, record.sha256, fresh)

    def _merge_edit(self, found: Document, known: Document | None) -> tuple[State, tuple[int, ...]]:
        """The edit's state with what an old copy turned back put on top, and the revisions that it overwrote."""
        if known is None:
            return found.state, ()
        if found.state.revision >= known.state.revision:
            return outside_edits.restore_run_counters(known.state, found.state), ()
        later = []
        for record in revision_journal.iter_newest_first(self._board_paths.journal):
            if record.revision <= found.state.revision:
                break
            later.append(record)
        base = self._edited_base(found, known)
        named = frozenset(record.task for record in later if record.task)
        numbers = tuple(sorted(record.revision for record in later))
        if set(range(found.state.revision + 1, known.state.revision + 1)) - set(numbers):
            # The journal does not tell all that happened since: what the crew did may have been to any task.
            named = frozenset(task.id for task in (*known.state.tasks, *found.state.tasks))
        return outside_edits.merge_edit(base.state if base else None, known.state, found.state, named), numbers

    def _describe_edit(self, known: Document | None, made: Document, overwrote: tuple[int, ...]) -> tuple[str, ...]:
        from liza.rules import transitions

        found = []
        if overwrote:
            numbers = ", ".join(map(str, overwrote))
            found.append(f"an edit of an old copy overwrote revision {numbers}; what they did was put forward again")
        if known is None:
            return (*found, *(f"{one}" for one in new_violations.find_all(made.state)))
        found += [f"changed outside liza: {one}" for one in transitions.find_illegal_changes(known.state, made.state)]
        found += [f"changed outside liza: {one}" for one in new_violations.find_added_in_full(known.state, made.state)]
        return tuple(found)
