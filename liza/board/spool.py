"""The spool: one file per revision with its changes, kept until the revision is recorded in the history."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from liza.board.text import document
from liza.board.text.splitter import PieceKind
from liza.board.write_intent import sha
from liza.model.errors import BoardInconsistent, NotRegularFile
from liza.model.value_classes import decodable
from liza.system import crash_points, files, untrusted_files

FULL_TEXT_INTERVAL: Final = 64
"""Every so many revisions the whole text is kept, so that a missing item affects at most this many revisions."""
UNKNOWN_RENEWED: Final = (("", ""),)
"""Value of ``WriteIntent.renewed`` if the renewed entries are not known: the next item keeps the whole text."""
_MAX_FILE_SIZE: Final = 4 * files.MAX_BOARD_SIZE  # bytes of an item: a board as JSON, with escapes
_HEAD_SIZE: Final = 4096  # bytes of an item in which its text begins, if it has the whole text
_PROCESS_LIMITS: Final = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Errors of this process, not of the file: the item can be read later."""
_UNRECORDED_SUFFIX: Final = ".odd"
PREVIOUS_NAME: Final = "previous"
DRAIN_SIZE: Final = 64 << 20
"""Bytes; the writer itself drains a larger spool."""


class EntryChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """The new text of one entry. ``after`` is the key of the entry before it, if the entry is new."""

    section: str
    key: str
    text: str
    after: str | None = None


class SpoolItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One revision: the changed ``entries``, or the ``full`` text. ``sha`` is the sha256 of the board after it."""

    revision: int
    subject: str
    actor: str
    time: str
    sha: str
    entries: tuple[EntryChange, ...] = ()
    full: str | None = None


class _Unreadable(Exception):
    """A file that is missing, damaged or replaced."""


def _read_now(path: Path) -> bytes:
    """Return the bytes of a file. Raises _Unreadable, OSError if this process can read no file now."""
    try:
        return untrusted_files.read(path, _MAX_FILE_SIZE)
    except (OSError, NotRegularFile) as error:
        if isinstance(error, OSError) and error.errno in _PROCESS_LIMITS:
            raise
        raise _Unreadable from error


class RecordedRevisions:
    """The revisions of a batch that were recorded, and the text of the newest. Add them in ascending order."""

    def __init__(self, revisions: Iterable[tuple[int, str]] = ()) -> None:
        self.numbers: set[int] = set()
        self.newest_text = ""
        for revision, text in revisions:
            self.add(revision, text)

    def add(self, revision: int, text: str) -> None:
        """Add a revision that is newer than the others."""
        self.numbers.add(revision)
        self.newest_text = text


class Spool:
    """The directory of waiting revisions, and the file ``base``: the text of the newest revision that was dropped."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._base = directory.with_name("base")
        self._previous = directory.with_name(PREVIOUS_NAME)

    def add_item(self, item: SpoolItem) -> None:
        """Add a revision. Raises WriteFailed."""
        files.replace_unsynced(self._directory / str(item.revision), msgspec.json.encode(item))

    @files.convert_os_errors()
    def revisions(self) -> list[int]:
        """Return the waiting revisions, ascending. Raises WriteFailed if the path is not a directory."""
        try:
            with os.scandir(self._directory) as entries:
                return sorted(int(entry.name) for entry in entries if entry.name.isdecimal())
        except FileNotFoundError:
            return []

    def age(self, revision: int, now: datetime) -> float | None:
        """Return the seconds since a revision was added, by the clock of the file system; None if it was dropped."""
        try:
            return now.timestamp() - (self._directory / str(revision)).stat().st_mtime
        except OSError:
            return None

    def read_items(self) -> Iterator[SpoolItem]:
        """Yield the waiting revisions, ascending; unreadable items are left out.

        Raises WriteFailed if this process can open no more files.
        """
        for revision in self.revisions():
            item = self._read_item(revision)
            if item is not None:
                yield item

    @files.convert_os_errors()
    def _read_item(self, revision: int) -> SpoolItem | None:
        try:
            item = msgspec.json.decode(_read_now(self._directory / str(revision)), type=decodable(SpoolItem))
            # The recorder needs the order, and a time that git accepts.
            is_valid = item.revision == revision and datetime.fromisoformat(item.time).timestamp() >= 0
        except (_Unreadable, ValueError, OverflowError, RecursionError):
            return None
        return item if is_valid else None

    def is_complete_after(self, revision: int) -> bool:
        """Return whether the next revision may be stored as a difference: no item up to ``revision`` is missing."""
        waiting, base = self.revisions(), self._base_revision()
        if not waiting:
            return base == revision
        if waiting[-1] != revision or len(waiting) != revision - waiting[0] + 1:
            return False
        return self._has_full_text(waiting[0]) if base is None else waiting[0] <= base + 1

    def _has_full_text(self, revision: int) -> bool:
        """Return whether an item has the whole text, without reading that; False if it cannot be read."""
        with suppress(OSError, NotRegularFile), untrusted_files.open_to_read(self._directory / str(revision)) as file:
            # In a JSON string the quote would have a backslash before it.
            return b'"full":"' in file.read(_HEAD_SIZE)
        return False

    def has_revision(self, revision: int) -> bool:
        """Return whether ``revision`` was added here, readable or not, or was dropped after it had been recorded."""
        dropped = self._base_revision()
        if dropped is None and not self.revisions():
            # The spool is empty, so the revision may have been recorded.
            return True
        return (dropped or 0) >= revision or revision in (*self.revisions(), *self.list_unrecorded())

    def lacks_base(self) -> bool:
        """Return whether the first waiting revision is a difference to a text that is not here, or is unreadable.

        Raises WriteFailed if this process can open no more files.
        """
        waiting = self.revisions()
        return bool(waiting) and not self._has_full_text(waiting[0]) and self.read_base() is None

    def write_base(self, revision: int, text: str) -> None:
        """Write the text of the newest dropped revision. Raises WriteFailed."""
        files.replace_unsynced(self._base, msgspec.json.encode((revision, text)))

    def _base_revision(self) -> int | None:
        """Return the newest dropped revision, without reading its text; None if no revision was dropped."""
        try:
            with untrusted_files.open_to_read(self._base) as file:
                return int(file.read(24)[1:].partition(b",")[0])  # JSON: [revision, text]
        except (OSError, NotRegularFile, ValueError):
            return None

    def lowest_revision(self) -> int | None:
        """Return the oldest revision whose text is kept here; None if no text is kept."""
        numbers = [number for number in (self._base_revision(), *self.revisions()[:1]) if number is not None]
        return min(numbers, default=None)

    @files.convert_os_errors()
    def size(self) -> int:
        """Return the size of all waiting revisions, in bytes. Raises WriteFailed if the path is not a directory."""
        total = 0
        with suppress(FileNotFoundError), os.scandir(self._directory) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    total += entry.stat().st_size if entry.name.isdecimal() else 0
        return total

    @files.convert_os_errors()
    def read_base(self) -> tuple[int, str] | None:
        """Return the newest dropped revision and its text; None if no revision was dropped, or it is unreadable.

        Raises WriteFailed if this process can open no more files.
        """
        try:
            revision, text = msgspec.json.decode(_read_now(self._base), type=decodable(tuple[int, str]))
        except (_Unreadable, ValueError, RecursionError):
            return None
        return revision, text

    def read_previous(self) -> str | None:
        """Return the board before the last write, heartbeats included; None if it is not kept or not UTF-8."""
        try:
            return untrusted_files.read(self._previous, files.MAX_BOARD_SIZE).decode()
        except (OSError, NotRegularFile, ValueError):
            return None

    @files.convert_os_errors()
    def drop_through(self, revision: int, recorded: RecordedRevisions) -> list[int]:
        """Drop the revisions up to ``revision``; the text of the newest recorded one becomes the base.

        A revision that is not recorded could not be read or rebuilt. It is not deleted: its file gets
        another name, so that it does not stop the others. Return these revisions.
        """
        dropped = self._base_revision() or 0
        waiting = [number for number in self.revisions() if number <= revision]
        odd = [number for number in waiting if number > dropped and number not in recorded.numbers]
        # Before the base is written: after a crash everything up to the base can be deleted.
        for number in odd:
            with suppress(FileNotFoundError):
                (self._directory / str(number)).rename(self.unrecorded_path(number))
            crash_points.point("unrecorded", "spool")
        if recorded.numbers:
            self.write_base(max(recorded.numbers), recorded.newest_text)
        for number in waiting:
            if number not in odd:
                (self._directory / str(number)).unlink(missing_ok=True)
                crash_points.point("dropped", "spool")
        return odd

    def unrecorded_path(self, revision: int) -> Path:
        """Return the path of the file of a revision that could not be recorded."""
        return self._directory / f"{revision}{_UNRECORDED_SUFFIX}"

    def list_unrecorded(self) -> list[int]:
        """Return the revisions that could not be recorded, ascending."""
        names = [path.stem for path in self._directory.glob(f"*{_UNRECORDED_SUFFIX}")]
        return sorted(int(name) for name in names if name.isdecimal())

    @files.convert_os_errors()
    def remove_revision(self, revision: int) -> None:
        """Remove a revision that was not committed."""
        (self._directory / str(revision)).unlink(missing_ok=True)
        crash_points.point("forgotten", "spool")

    def rebuild_texts(self) -> Iterator[tuple[int, str]]:
        """Yield each revision with its text, ascending from the base; those that cannot be rebuilt are left out."""
        text, dropped = None, 0
        if (base := self.read_base()) is not None:
            dropped, text = base
            yield base
        for item in self.read_items():
            if item.revision <= dropped:
                # Left by a crash after the new base was written and before the last unlink: older than the base.
                continue
            text = self._rebuild_text(text, item)
            if text is not None:
                yield item.revision, text

    def _rebuild_text(self, text: str | None, item: SpoolItem) -> str | None:
        """Return the text of a revision, built on the one before it or, if that is lost, on the previous board."""
        if text is None and item.full is None:
            text = self.read_previous()
        try:
            return None if text is None and item.full is None else apply_item(text or "", item)
        except BoardInconsistent:
            return None


_last: document.Document | None = None
"""Cache: the last document that ``apply_item`` read, whose parts need no new parsing."""


def apply_item(base_text: str, item: SpoolItem) -> str:
    """Return the text of a revision, given the text before it. Raises BoardInconsistent if the digest differs."""
    global _last
    if item.full is not None:
        return _check_sha(item, item.full)
    base = _last = document.read_document(base_text, previous=_last)
    parts = {name: index for index, name in enumerate(base.names)}
    texts = [part.text for part in base.parts]
    added: dict[int, str] = {}  # text of new entries, by the index of the part before them
    for change in item.entries:
        if change.after is None and (change.section, change.key) in parts:
            texts[parts[change.section, change.key]] = change.text
        elif change.after is not None and (change.section, change.after) in parts:
            index = parts[change.section, change.after]
            added[index] = added.get(index, "") + change.text
        else:
            raise BoardInconsistent(
                f"revision {item.revision} in the spool changes an entry that the one before it lacks", "liza doctor"
            )
    text = "".join(text + added.get(index, "") for index, text in enumerate(texts))
    return _check_sha(item, text)


def _check_sha(item: SpoolItem, text: str) -> str:
    if sha(text.encode()) != item.sha:
        raise BoardInconsistent(
            f"the text of revision {item.revision} in the spool does not match its digest", "liza doctor"
        )
    return text


def diff_entries(
    before: document.Document, after: document.Document, renewed: tuple[tuple[str, str], ...]
) -> tuple[EntryChange, ...] | None:
    """Return the changed entries between two documents; None if the whole text must be kept.

    ``renewed`` are entries to include even if they are equal: heartbeats changed them since the last revision.
    """
    if before.is_whole or after.is_whole:
        return None
    if before.names == after.names:
        renewed_names = set(renewed)
        return tuple(
            EntryChange(*name, now.text)
            for was, now, name in zip(before.parts, after.parts, after.names, strict=True)
            if (was is not now and was.text != now.text) or (renewed_names and name in renewed_names)
        )
    return _diff_added_entries(before, after, set(renewed))


def _diff_added_entries(
    before: document.Document, after: document.Document, renewed: set[tuple[str, str]]
) -> tuple[EntryChange, ...] | None:
    """Return the changed and added entries; None if one was removed or moved, or added to a section without entries."""
    old = {name: part.text for name, part in zip(before.names, before.parts, strict=True)}
    changed = []
    kept = []
    last_key: dict[str, str] = {}
    for (section, key), part in zip(after.names, after.parts, strict=True):
        if (section, key) in old:
            kept.append((section, key))
            last_key[section] = key
            if old[section, key] != part.text or (section, key) in renewed:
                changed.append(EntryChange(section, key, part.text))
        elif part.kind in (PieceKind.ITEM, PieceKind.PAIR) and section in last_key:
            changed.append(EntryChange(section, key, part.text, after=last_key[section]))
        else:
            return None
    return tuple(changed) if kept == before.names else None
