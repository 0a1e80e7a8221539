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
from liza.board.commit_steps import Places
from liza.board.revision_journal import RevisionRecord
from liza.board.spool import Spool, SpoolItem
from liza.board.text import changes, document
from liza.board.text.document import RESTORE, Document
from liza.board.text.values import refuse_unreachable, time_text
from liza.board.write_intent import Seal, sha
from liza.rules.errors import BoardInconsistent, BoardTooNew, BoardUnreadable, LizaError
from liza.rules.model import Clock, State
from liza.rules.paths import Paths
from liza.system import files

STILL: Final = 0.5
"""Seconds for which size, time and sha of an edited board must stand still before it counts."""
_PATIENCE: Final = 10.0
_TORN_READS: Final = 2
_FRESH: Final = 2.0
"""Seconds after its last change in which a board that is broken or short may still be on its way."""


@dataclass(frozen=True)
class LockedBoard:
    """The board under its lock: what it means, its bytes' sha, and the seal that fits it."""

    document: Document
    data: bytes
    digest: str
    seal: Seal


class _Unsettled(Exception):
    """An edit from outside that may still be going on."""


class Settler:
    """Reads the board, remembers what it read, and settles what it finds under the lock."""

    def __init__(self, paths: Paths, clock: Clock, spool: Spool) -> None:
        self._places, self._clock, self._spool = Places(paths), clock, spool
        self._data, self._digest = b"", ""
        self._document: Document | None = None
        self.alerts: list[tuple[str, str, datetime]] = []
        self.is_broken = False
        """Whether the last reading under the lock found a board whose end is missing."""

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def found(self) -> bytes:
        """The bytes of the board. Raises BoardUnreadable where there are none."""
        try:
            return files.read(self._places.state, files.LARGEST)
        except FileNotFoundError:
            raise BoardUnreadable(f"{document.NAME} is gone", RESTORE) from None
        except OSError as error:
            raise BoardUnreadable(f"{document.NAME}: {error.strerror}", RESTORE) from None

    def digest(self, data: bytes) -> str:
        """The sha256 of bytes; free for those that were read last."""
        return self._digest if self._document is not None and data == self._data else sha(data)

    def document(self, data: bytes) -> Document:
        """What bytes mean, parsing what is new in them only. Raises BoardUnreadable, BoardTooNew."""
        if self._document is not None and data == self._data:
            return self._document
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise BoardUnreadable(f"{document.NAME}:{line}: not UTF-8: {error.reason}", RESTORE) from None
        made = document.read(text, known=self._document)
        self.remember(data, sha(data), made)
        return made

    def remember(self, data: bytes, digest: str, made: Document) -> None:
        """Keeps what the newest bytes mean."""
        self._data, self._digest, self._document = data, digest, made

    # ── under the lock ───────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def entered(self, held: Callable[[], AbstractContextManager[None]]) -> Iterator[LockedBoard]:
        """The settled board with the lock held; while an edit settles down, the lock is let go."""
        seen: tuple[int, int, str] | None = None
        torn = 0
        limit = time.monotonic() + _PATIENCE
        while True:
            with held():
                found = self._fingerprint()
                try:
                    self.is_broken = False
                    age = time.time() - found[1] / 1e9
                    # A slow writer stands still as well, and is not done.
                    still = (found == seen or age > STILL) and not files.is_being_written(self._places.state)
                    standing = self.settled(accepted=still, patient=torn < _TORN_READS and age < _FRESH)
                except _Unsettled as unsettled:
                    torn += bool(unsettled.args)
                else:
                    yield standing
                    return
            if time.monotonic() > limit:
                raise BoardInconsistent(f"{document.NAME} keeps changing outside its lock", "liza lock -- CMD")
            seen = found
            time.sleep(STILL)  # stillness is a time, and no event tells it

    @files.named()
    def _fingerprint(self) -> tuple[int, int, str]:
        data = self.found()
        stat = self._places.state.stat()
        return stat.st_size, stat.st_mtime_ns, self.digest(data)

    @files.named()
    def settled(self, accepted: bool, patient: bool) -> LockedBoard:
        """The board after settling. Raises BoardUnreadable, BoardTooNew, BoardInconsistent, and _Unsettled."""
        data = self.found()
        digest = self.digest(data)
        sealed = write_intent.read(self._places.seal)
        last = revision_journal.last(self._places.journal)
        if last is not None and last.sha256 == digest and (sealed is None or sealed.revision < last.revision):
            # The journal is on the disk before the board is; after a power cut seal and spool may lag behind both.
            sealed = Seal(last.revision, digest, digest, spool.IN_FULL)
            commit_steps.write_seal(self._places, sealed)
        if sealed is not None and digest == sealed.after:
            if last is not None and last.revision > sealed.revision:
                self._void(last)
            return LockedBoard(self.document(data), data, digest, sealed)
        if sealed is not None and self.is_untouched(sealed, digest):
            found = self.document(data)
            # What never came to be may also have been a heartbeat, whose seal bears the revision that it left standing.
            if last is not None and last.revision > found.state.revision:
                self._void(last)
            sealed = sealed.undone()
            commit_steps.write_seal(self._places, sealed)
            return LockedBoard(found, data, digest, sealed)
        if not accepted:
            raise _Unsettled
        return self._settle_edit(data, digest, sealed, last, patient)

    def is_untouched(self, sealed: Seal, digest: str) -> bool:
        """Whether the board is still the very file that the last writer found: its change never came to be."""
        same_file = sealed.stood is None or sealed.stood == write_intent.standing(self._places.state)
        return digest == sealed.before and same_file

    def settle_birth(self) -> None:
        """A first board that a crash kept from coming to be leaves nothing that counts."""
        sealed, last = write_intent.read(self._places.seal), revision_journal.last(self._places.journal)
        if last is not None and (sealed is None or not sealed.before):
            self._void(last)

    def _void(self, record: RevisionRecord) -> None:
        """A revision that was announced and never came to be."""
        # First out of the spool: once the void is written nobody looks for it there, and it would go into history.
        self._spool.forget(record.revision)
        revision_journal.append(
            self._places.journal, RevisionRecord(void=record.revision, time=time_text(self._clock.now()))
        )

    def known(self) -> Document | None:
        """The newest board that is known to have been one: remembered, or rebuilt from the spool."""
        return self._newest(self._document)

    def _newest(self, remembered: Document | None) -> Document | None:
        newest = remembered
        texts = [text for _, text in self._spool.texts()][-1:]
        if texts:
            kept = document.read(texts[0], known=newest)
            if newest is None or kept.state.revision > newest.state.revision:
                newest = kept
        spare = self.spare(newest)
        if spare is not None and (newest is None or spare.state.revision > newest.state.revision):
            newest = spare
        return newest

    def spare(self, known: Document | None = None) -> Document | None:
        """The board before the last change, where its bytes are those that the last writer found."""
        text, sealed = self._spool.previous(), write_intent.read(self._places.seal)
        if text is None or sealed is None or sha(text.encode()) != sealed.before:
            return None
        try:
            return document.read(text, known=known)
        except LizaError:
            return None

    def settle_unread(self) -> None:
        """A change that could not take the place of a board that cannot be read never came to be."""
        sealed, last = write_intent.read(self._places.seal), revision_journal.last(self._places.journal)
        if last is not None and (self._never_came(sealed, last) or not self._spool.has(last.revision)):
            self._void(last)

    def unread(self, good: Document) -> LockedBoard:
        """A board that cannot be read, standing as the last good one."""
        try:
            data = self.found()
        except BoardUnreadable:
            data = b""
        sealed = write_intent.read(self._places.seal) or Seal(0, "", "")
        # Not the sha of these bytes: a seal that names them as what came before would have them count, should the
        # disk refuse what is to take their place.
        return LockedBoard(good, data, sealed.before, sealed)

    # ── an edit from outside ─────────────────────────────────────────────────────────────────────────────────────

    def _settle_edit(
        self, data: bytes, digest: str, sealed: Seal | None, last: RevisionRecord | None, patient: bool
    ) -> LockedBoard:
        remembered = (self._data, self._digest, self._document)
        try:
            found = self.document(data)
            refuse_unreachable(found.state.revision)
        except BoardTooNew:
            raise
        except LizaError:
            self._data, self._digest, self._document = remembered
            if patient:
                raise _Unsettled("broken") from None
            raise
        if last is not None and found.state.revision < last.revision and self._never_came(sealed, last):
            self._void(last)
        known = self._newest(remembered[2])
        if known is not None and self._is_cut(known, found, digest):
            self._data, self._digest, self._document = remembered
            if patient:
                raise _Unsettled("torn")
            raise self._torn(known, found)
        return self._record(found, known, sealed)

    def _is_cut(self, known: Document, found: Document, digest: str) -> bool:
        """Whether the end of an edit is missing: of the newest board, or of an old copy, which is whole where the
        journal knows its bytes."""
        if found.state.revision >= known.state.revision:
            return outside_edits.torn(known, found)
        for record in revision_journal.newest(self._places.journal):
            if record.revision == found.state.revision and record.sha256 == digest:
                return False
            if record.revision < found.state.revision:
                break
        return outside_edits.cut_off(self._base(found, known), known, found)

    def _base(self, found: Document, known: Document) -> Document | None:
        """The board that an old copy was made of, where it still waits in the spool."""
        for revision, text in self._spool.texts():
            if revision == found.state.revision:
                return document.read(text, known=known)
        return None

    def _never_came(self, sealed: Seal | None, last: RevisionRecord) -> bool:
        """Whether a kill kept the newest revision of the journal from the board that was then edited, or from being
        the settlement of that very edit."""
        if sealed is None:
            return all(revision != last.revision for revision, _ in self._spool.texts())
        here = write_intent.standing(self._places.state)
        return last.revision > sealed.revision or (last.revision == sealed.revision and sealed.stood == here)

    def _torn(self, known: Document, found: Document) -> BoardInconsistent:
        gone = len(known.parts) - len(found.parts)
        lost = f"{gone} entries" if gone > 0 else "part of the last entry"
        message = f"the end of {document.NAME} is missing ({lost}); nothing is written until it is back"
        self.is_broken = True
        self.alerts.append(("torn", message, self._clock.now()))
        return BoardInconsistent(message, RESTORE)

    def _record(self, found: Document, known: Document | None, sealed: Seal | None) -> LockedBoard:
        """Gives an edit its number, its entry in the journal and its place in the spool."""
        highest = revision_journal.highest(self._places.journal)
        number = 1 + max(found.state.revision, sealed.revision if sealed else 0, highest)
        wanted, overwrote = self._put_forward(found, known)
        made = changes.spliced(found, msgspec.structs.replace(wanted, revision=number))
        messages = self._judged(known, made, overwrote)
        data = files.encoded(made.text)
        record = RevisionRecord(
            number,
            time_text(self._clock.now()),
            "outside",
            "external_edit",
            sha256=sha(data),
            diff=outside_edits.difference(known.text if known else "", made.text),
            alerts=messages,
            overwrote=overwrote,
        )
        # Not the bytes of the edit: a kill must leave them as an edit, to be judged and numbered again.
        fresh = Seal(number, sealed.after if sealed else "", record.sha256)
        commit_steps.write_journal(self._places, record)
        commit_steps.write_seal(self._places, fresh)
        item = SpoolItem(number, "external edit (outside)", "outside", record.time, record.sha256, full=made.text)
        commit_steps.write_spool(self._spool, item)
        commit_steps.rename(self._places, commit_steps.write_aside(self._places, data))
        commit_steps.settle_directory(self._places)
        self.remember(data, record.sha256, made)
        now = self._clock.now()
        self.alerts.append(("external_edit", f"revision {number} was made outside liza", now))
        self.alerts += [("overwritten" if overwrote else "external_edit", message, now) for message in messages]
        return LockedBoard(made, data, record.sha256, fresh)

    def _put_forward(self, found: Document, known: Document | None) -> tuple[State, tuple[int, ...]]:
        """The edit's state with what an old copy turned back put on top, and the revisions that it overwrote."""
        if known is None:
            return found.state, ()
        if found.state.revision >= known.state.revision:
            return outside_edits.runs_kept(known.state, found.state), ()
        later = []
        for record in revision_journal.newest(self._places.journal):
            if record.revision <= found.state.revision:
                break
            later.append(record)
        base = self._base(found, known)
        named = frozenset(record.task for record in later if record.task)
        numbers = tuple(sorted(record.revision for record in later))
        if set(range(found.state.revision + 1, known.state.revision + 1)) - set(numbers):
            # The journal does not tell all that happened since: what the crew did may have been to any task.
            named = frozenset(task.id for task in (*known.state.tasks, *found.state.tasks))
        return outside_edits.put_forward(base.state if base else None, known.state, found.state, named), numbers

    def _judged(self, known: Document | None, made: Document, overwrote: tuple[int, ...]) -> tuple[str, ...]:
        from liza.rules import transitions

        found = []
        if overwrote:
            numbers = ", ".join(map(str, overwrote))
            found.append(f"an edit of an old copy overwrote revision {numbers}; what they did was put forward again")
        if known is None:
            return (*found, *(f"{one}" for one in new_violations.every(made.state)))
        found += [f"changed outside liza: {one}" for one in transitions.judge(known.state, made.state)]
        found += [f"changed outside liza: {one}" for one in new_violations.beyond(known.state, made.state)]
        return tuple(found)
