"""Repair the board at the start of a transaction: finish or undo an interrupted commit, accept an edit from outside."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Final

import msgspec

from liza.board import new_violations, revision_texts
from liza.board.file_store import commit_steps, outside_edits, revision_journal, write_intent
from liza.board.file_store.write_intent import WriteIntent
from liza.board.revisions import RevisionLine, RevisionRecord, sha
from liza.board.text import changes, document
from liza.board.text.document import RESTORE_COMMAND, Document
from liza.board.text.values import check_revision
from liza.model import transitions
from liza.model.errors import BoardInconsistent, BoardTooNew, BoardUnreadable, LizaError, NotRegularFile
from liza.model.model import Clock, State
from liza.model.paths import Paths
from liza.model.value_classes import Value
from liza.system import files, untrusted_files
from liza.text.formats import format_time

STABLE_SECONDS: Final = 0.5
"""Seconds for which size, time and sha256 of an edited board must stay the same before it is accepted."""
_STABLE_TIMEOUT: Final = 10.0
"""Seconds to wait for a board that keeps changing."""
_TORN_READS: Final = 2
"""Reads that find a recent edit broken or truncated before this is reported."""
_RECENT_SECONDS: Final = 2.0
"""Seconds after the last change in which a broken or short board may still be in the course of being written."""


class LockedBoard(Value):
    """The board under its lock: the document, its bytes, their sha256, and the write intent that matches them.

    ``journaled`` is the newest committed revision of the journal, 0 if that is not known.
    """

    document: Document
    data: bytes
    digest: str
    intent: WriteIntent
    journaled: int = 0


class _StillChanging(Exception):
    """An edit from outside may still be in progress. Has an argument if the text is broken or truncated."""


class BoardRepairer:
    """Read the board, cache the last document, and repair the board under the lock."""

    def __init__(self, paths: Paths, clock: Clock) -> None:
        self._paths, self._clock = paths, clock
        self._data, self._digest = b"", ""
        self._document: Document | None = None
        self.alerts: list[tuple[str, str, datetime]] = []
        self.is_truncated = False
        """Whether the last read under the lock found a truncated board."""

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def read_bytes(self) -> bytes:
        """Return the bytes of the board. Raises BoardUnreadable if the file is missing or cannot be read."""
        try:
            return untrusted_files.read(self._paths.state, files.MAX_BOARD_SIZE, follow_links=True)
        except FileNotFoundError:
            raise BoardUnreadable(f"{document.BOARD_NAME} is gone", RESTORE_COMMAND) from None
        except NotRegularFile as error:
            raise BoardUnreadable(error.message, RESTORE_COMMAND) from None
        except OSError as error:
            raise BoardUnreadable(f"{document.BOARD_NAME}: {error.strerror}", RESTORE_COMMAND) from None

    def hash_bytes(self, data: bytes) -> str:
        """Return the sha256 of ``data``; cached for the bytes that were read last."""
        return self._digest if self._document is not None and data == self._data else sha(data)

    def parse_bytes(self, data: bytes, digest: str = "") -> Document:
        """Parse ``data``; parts that the cached document has are reused. ``digest``: its sha256 if it is known.

        Raises BoardUnreadable, BoardTooNew.
        """
        if self._document is not None and data == self._data:
            return self._document
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise BoardUnreadable(f"{document.BOARD_NAME}:{line}: not UTF-8: {error.reason}", RESTORE_COMMAND) from None
        parsed = document.read_document(text, previous=self._document)
        self.remember(data, digest or sha(data), parsed)
        return parsed

    def remember(self, data: bytes, digest: str, parsed: Document) -> None:
        """Cache the newest bytes, their sha256 and their document."""
        self._data, self._digest, self._document = data, digest, parsed

    # ── under the lock ───────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def lock_and_repair(self, hold_lock: Callable[[], AbstractContextManager[None]]) -> Iterator[LockedBoard]:
        """Take the lock, repair the board and yield it. Release the lock while waiting for an edit to end.

        Raises BoardInconsistent if the board still changes after 10 seconds, and what ``repair`` raises.
        """
        seen: tuple[int, int, str] | None = None
        torn = 0
        limit = time.monotonic() + _STABLE_TIMEOUT
        while True:
            with hold_lock():
                fingerprint = self._fingerprint()
                try:
                    self.is_truncated = False
                    age = time.time() - fingerprint[1] / 1e9
                    # A slow writer may pause for longer than that, so also ask the kernel for open writers.
                    stable = (fingerprint == seen or age > STABLE_SECONDS) and not files.is_being_written(
                        self._paths.state
                    )
                    locked = self.repair(accepted=stable, patient=torn < _TORN_READS and age < _RECENT_SECONDS)
                except _StillChanging as changing:
                    torn += bool(changing.args)
                else:
                    yield locked
                    return
            if time.monotonic() > limit:
                raise BoardInconsistent(f"{document.BOARD_NAME} keeps changing outside its lock", "liza lock --help")
            seen = fingerprint
            time.sleep(STABLE_SECONDS)  # no event says that a file has stopped changing

    @files.convert_os_errors()
    def _fingerprint(self) -> tuple[int, int, str]:
        data = self.read_bytes()
        stat = self._paths.state.stat()
        return stat.st_size, stat.st_mtime_ns, self.hash_bytes(data)

    @files.convert_os_errors()
    def repair(self, accepted: bool, patient: bool) -> LockedBoard:
        """Repair the board and return it. The caller holds the lock.

        ``accepted``: an edit from outside is complete and may be recorded. ``patient``: retry a broken or truncated
        edit. Raises BoardUnreadable, BoardTooNew, BoardInconsistent, and _StillChanging to retry later.
        """
        data = self.read_bytes()
        digest = self.hash_bytes(data)
        intent = write_intent.read_intent(self._paths.write_intent)
        last = revision_journal.last_record(self._paths.journal)
        if last is not None and last.sha256 == digest and (intent is None or intent.revision < last.revision):
            # Journal and board are synced to disk, the write intent is not: after a power cut it may be older. The
            # journal has the digest of this board, so write the intent again.
            intent = WriteIntent(last.revision, digest, digest)
            commit_steps.record_intent(self._paths, intent)
        if intent is not None and digest == intent.after:
            if last is not None and last.revision > intent.revision:
                last = self._void(last)
            return LockedBoard(self.parse_bytes(data, digest), data, digest, intent, last.revision if last else 0)
        if intent is not None and self.is_untouched(intent, digest):
            parsed = self.parse_bytes(data, digest)
            # Compare with the revision of the board, not of the intent: a heartbeat writes an intent too, with the
            # unchanged revision.
            if last is not None and last.revision > parsed.state.revision:
                last = self._void(last)
            intent = intent.rolled_back()
            commit_steps.record_intent(self._paths, intent)
            return LockedBoard(parsed, data, digest, intent, last.revision if last else 0)
        if not accepted:
            raise _StillChanging
        return self._accept_edit(data, digest, intent, patient)

    def is_untouched(self, intent: WriteIntent, digest: str) -> bool:
        """Return whether the last writer did not rename its board. Then the board is the one that it found."""
        return digest == intent.before and self._hash_next() == intent.after

    def _hash_next(self) -> str:
        """Return the sha256 of the board that a writer did not rename; empty if there is no such file."""
        try:
            return sha(untrusted_files.read(self._paths.next_board, files.MAX_BOARD_SIZE))
        except (OSError, NotRegularFile):
            return ""

    def void_uncommitted(self) -> None:
        """Void the newest revision of the journal if a crash kept it from being written."""
        last = revision_journal.last_record(self._paths.journal)
        if last is not None and self._hash_next() == last.sha256:
            self._void(last)

    def _void(self, record: RevisionRecord) -> RevisionRecord | None:
        """Record that a revision in the journal was not written. Return the newest one that was."""
        journal = self._paths.journal
        revision_journal.append_record(
            journal, RevisionRecord(void=record.revision, time=format_time(self._clock.now()))
        )
        return revision_journal.last_record(journal)

    def newest_known(self) -> Document | None:
        """Return the newest valid board: cached, or rebuilt from the journal."""
        return self._newest_of(self._document)

    def _newest_of(self, remembered: Document | None) -> Document | None:
        last = revision_journal.last_record(self._paths.journal)
        if remembered is not None and (last is None or remembered.state.revision >= last.revision):
            return remembered
        newest = revision_texts.newest_text(lambda: revision_journal.iter_lines(self._paths.journal))
        if newest is None or (remembered is not None and remembered.state.revision >= newest[0]):
            return remembered
        return document.read_document(newest[1], previous=remembered)

    def substitute_good(self, good: Document) -> LockedBoard:
        """Return ``good`` as the board before the replacement of an unreadable one."""
        try:
            data = self.read_bytes()
        except BoardUnreadable:
            data = b""
        intent = write_intent.read_intent(self._paths.write_intent) or WriteIntent(0, "", "")
        # Not the sha256 of these bytes: if the next write fails, a write intent that names them as the bytes before
        # would make the unreadable board valid.
        return LockedBoard(good, data, intent.before, intent)

    # ── an edit from outside ─────────────────────────────────────────────────────────────────────────────────────

    def _accept_edit(self, data: bytes, digest: str, intent: WriteIntent | None, patient: bool) -> LockedBoard:
        remembered = (self._data, self._digest, self._document)
        try:
            edited = self.parse_bytes(data)
            check_revision(edited.state.revision)
        except BoardTooNew:
            raise
        except LizaError:
            self._data, self._digest, self._document = remembered
            if patient:
                raise _StillChanging("broken") from None
            raise
        self.void_uncommitted()
        newest = self._newest_of(remembered[2])
        if newest is not None and self._is_edit_truncated(newest, edited, digest):
            self._data, self._digest, self._document = remembered
            if patient:
                raise _StillChanging("torn")
            raise self._truncation_error(newest, edited)
        return self._record_edit(edited, newest, intent)

    def _is_edit_truncated(self, newest: Document, edited: Document, digest: str) -> bool:
        """Return whether the end of an edit is missing.

        An old copy is complete if the journal has the digest of its bytes."""
        if edited.state.revision >= newest.state.revision:
            return outside_edits.is_truncated(newest, edited)
        for record in revision_journal.iter_newest_first(self._paths.journal):
            if record.revision == edited.state.revision and record.sha256 == digest:
                return False
            if record.revision < edited.state.revision:
                break
        return outside_edits.is_truncated(self._edited_base(edited, newest) or newest, edited)

    def _edited_base(self, edited: Document, newest: Document) -> Document | None:
        """Return the board that an old copy was made from, if the journal still has it."""
        for line, text in revision_texts.rebuild_texts(
            revision_journal.iter_lines(self._paths.journal), edited.state.revision
        ):
            if line.revision == edited.state.revision:
                return document.read_document(text, previous=newest)
        return None

    def _truncation_error(self, newest: Document, edited: Document) -> BoardInconsistent:
        gone = len(newest.parts) - len(edited.parts)
        lost = f"{gone} entries" if gone > 0 and not edited.is_whole else "part of the last entry"
        message = f"the end of {document.BOARD_NAME} is missing ({lost}); nothing is written until it is back"
        self.is_truncated = True
        self.alerts.append(("torn", message, self._clock.now()))
        return BoardInconsistent(message, RESTORE_COMMAND)

    def _record_edit(self, edited: Document, newest: Document | None, intent: WriteIntent | None) -> LockedBoard:
        """Commit an edit from outside as a revision: the same steps as a transaction."""
        highest = revision_journal.highest_revision(self._paths.journal)
        number = 1 + max(edited.state.revision, intent.revision if intent else 0, highest)
        merged, overwrote = self._merge_edit(edited, newest)
        changed = changes.change_document(edited, msgspec.structs.replace(merged, revision=number))
        messages = self._describe_edit(newest, changed, overwrote)
        data = files.encode_board(changed.text)
        line = RevisionLine(
            number,
            format_time(self._clock.now()),
            "outside",
            "external_edit",
            sha256=sha(data),
            alerts=messages,
            overwrote=overwrote,
            text=changed.text,
        )
        # ``before`` is not the sha256 of the edit: after a crash the edit must still be found as an edit and be judged
        # and numbered again.
        new_intent = WriteIntent(number, intent.after if intent else "", line.sha256)
        commit_steps.commit(self._paths, data, new_intent, line)
        self.remember(data, line.sha256, changed)
        now = self._clock.now()
        self.alerts.append(("external_edit", f"revision {number} is an edit from outside liza", now))
        self.alerts += [("overwritten" if overwrote else "external_edit", message, now) for message in messages]
        return LockedBoard(changed, data, line.sha256, new_intent, number)

    def _merge_edit(self, edited: Document, newest: Document | None) -> tuple[State, tuple[int, ...]]:
        """Return the state of the edit and the revisions that it overwrote.

        Changes that an edit of an old copy reverted are applied again in that state."""
        if newest is None:
            return edited.state, ()
        if edited.state.revision >= newest.state.revision:
            return outside_edits.restore_run_counters(newest.state, edited.state), ()
        later = []
        for record in revision_journal.iter_newest_first(self._paths.journal):
            if record.revision <= edited.state.revision:
                break
            later.append(record)
        base = self._edited_base(edited, newest)
        archived = frozenset(task_id for record in later for task_id in record.archived)
        named = frozenset(record.task for record in later if record.task)
        numbers = tuple(sorted(record.revision for record in later))
        if set(range(edited.state.revision + 1, newest.state.revision + 1)) - set(numbers):
            # The journal lacks some of the later revisions, so any task may have been changed by the crew.
            named = frozenset(task.id for task in (*newest.state.tasks, *edited.state.tasks))
        return outside_edits.merge_edit(
            base.state if base else None, newest.state, edited.state, named, archived
        ), numbers

    def _describe_edit(self, newest: Document | None, changed: Document, overwrote: tuple[int, ...]) -> tuple[str, ...]:
        messages = []
        if overwrote:
            numbers = ", ".join(map(str, overwrote))
            messages.append(f"an edit of an old copy overwrote revision {numbers}; those changes were applied again")
        if newest is None:
            return (*messages, *(f"{message}" for message in new_violations.find_all(changed.state)))
        messages += [
            f"changed outside liza: {message}"
            for message in transitions.find_illegal_changes(newest.state, changed.state)
        ]
        messages += [
            f"changed outside liza: {message}"
            for message in new_violations.find_added_in_full(newest.state, changed.state)
        ]
        return tuple(messages)
