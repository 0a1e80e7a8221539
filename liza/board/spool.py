"""What each revision changed, kept until the recorder has put it into history."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from liza.board.text import document
from liza.board.write_intent import sha
from liza.rules.errors import BoardInconsistent
from liza.system import crash_points, files

FULL_TEXT_INTERVAL: Final = 64
"""Each so many revisions the whole text is kept, so that a gap cannot reach far."""
UNKNOWN_RENEWED: Final = (("", ""),)
"""In the place of the entries that heartbeats changed: what came before is not known, keep the next revision whole."""
_MAX_FILE_SIZE: Final = 4 * files.MAX_BOARD_SIZE
PREVIOUS_NAME: Final = "previous"
DRAIN_SIZE: Final = 64 << 20
"""Bytes; a larger spool is drained by the writer."""


class EntryChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry's new text. ``after`` is the entry it comes behind, where it is new."""

    section: str
    key: str
    text: str
    after: str | None = None


class SpoolItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One revision: the changed ``entries``, or the ``full`` text. ``sha`` is that of the text after it."""

    revision: int
    subject: str
    actor: str
    time: str
    sha: str
    entries: tuple[EntryChange, ...] = ()
    full: str | None = None


class Spool:
    """The directory of waiting revisions, and ``base``: the text of the newest one that has left it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._base = directory.with_name("base")
        self._previous = directory.with_name(PREVIOUS_NAME)

    def add_item(self, item: SpoolItem) -> None:
        """Adds a revision."""
        files.replace_unsynced(self._directory / str(item.revision), msgspec.json.encode(item))

    @files.convert_os_errors()
    def revisions(self) -> list[int]:
        """The revisions that wait, ascending. Raises DiskRefused where no directory stands there."""
        try:
            return sorted(int(path.name) for path in self._directory.iterdir() if path.name.isdecimal())
        except FileNotFoundError:
            return []

    def read_items(self) -> Iterator[SpoolItem]:
        """The revisions that wait, ascending; one that cannot be read is left out."""
        for revision in self.revisions():
            try:
                yield msgspec.json.decode(
                    files.read_limited(self._directory / str(revision), _MAX_FILE_SIZE), type=SpoolItem
                )
            except (OSError, ValueError, RecursionError):
                continue

    def is_complete_after(self, revision: int) -> bool:
        """Whether what comes after ``revision`` can be put together from what waits: nothing of it was taken away."""
        waiting = self.revisions()
        if not waiting:
            return self._base_revision() == revision
        return waiting[-1] == revision and len(waiting) == revision - waiting[0] + 1

    def has_revision(self, revision: int) -> bool:
        """Whether the text of ``revision`` can be had from here, or was dropped after it had been recorded."""
        dropped = self._base_revision()
        if dropped is None and not self.revisions():
            # Nothing is known at all: it may have been recorded.
            return True
        return (dropped or 0) >= revision or any(number == revision for number, _ in self.rebuild_texts())

    def _base_revision(self) -> int | None:
        """The newest revision that was dropped, without reading its text."""
        try:
            with self._base.open("rb") as file:
                return int(file.read(24)[1:].partition(b",")[0])
        except (OSError, ValueError):
            return None

    @files.convert_os_errors()
    def size(self) -> int:
        """Bytes that wait. Raises DiskRefused where no directory stands there."""
        total = 0
        for revision in self.revisions():
            try:
                total += (self._directory / str(revision)).stat().st_size
            except FileNotFoundError:
                continue
        return total

    def read_base(self) -> tuple[int, str] | None:
        """The newest revision that was dropped, and its text."""
        try:
            revision, text = msgspec.json.decode(files.read_limited(self._base, _MAX_FILE_SIZE), type=tuple[int, str])
        except (OSError, ValueError, RecursionError):
            return None
        return revision, text

    def read_previous(self) -> str | None:
        """The board that the last writer found, heartbeats and all; None where it is not kept or is no text."""
        try:
            return files.read_limited(self._previous, files.MAX_BOARD_SIZE).decode()
        except (OSError, ValueError):
            return None

    @files.convert_os_errors()
    def drop_through(self, revision: int) -> None:
        """Lets go of the revisions up to ``revision``; the text of the newest of them stays as the base."""
        newest = None
        for number, text in self.rebuild_texts():
            if number > revision:
                break
            newest = number, text
        if newest is not None:
            files.replace_unsynced(self._base, msgspec.json.encode(newest))
        for number in self.revisions():
            if number <= revision:
                (self._directory / str(number)).unlink(missing_ok=True)
                crash_points.point("dropped", "spool")

    @files.convert_os_errors()
    def remove_revision(self, revision: int) -> None:
        """Takes out a revision that never came to be."""
        (self._directory / str(revision)).unlink(missing_ok=True)
        crash_points.point("forgotten", "spool")

    def rebuild_texts(self) -> Iterator[tuple[int, str]]:
        """Each revision with its text, ascending, from the base on; those that cannot be rebuilt are left out."""
        text, dropped = None, 0
        if (base := self.read_base()) is not None:
            dropped, text = base
            yield base
        for item in self.read_items():
            if item.revision <= dropped:
                # A kill between the new base and the last unlink left it; its text would not fit behind the base.
                continue
            text = self._rebuild_text(text, item)
            if text is not None:
                yield item.revision, text

    def _rebuild_text(self, text: str | None, item: SpoolItem) -> str | None:
        """The text of a revision: from the one before it, or, where that is lost, from the board before the last."""
        if text is None and item.full is None:
            text = self.read_previous()
        try:
            return None if text is None and item.full is None else apply_item(text or "", item)
        except BoardInconsistent:
            return None


_last: document.Document | None = None


def apply_item(base_text: str, item: SpoolItem) -> str:
    """The text of a revision from the text of the one before it. Raises BoardInconsistent where they do not fit."""
    global _last
    if item.full is not None:
        return _check_sha(item, item.full)
    known = _last = document.read_document(base_text, known=_last)
    parts = {name: place for place, name in enumerate(known.names)}
    texts = [part.text for part in known.parts]
    behind: dict[int, str] = {}
    for change in item.entries:
        if change.after is None and (change.section, change.key) in parts:
            texts[parts[change.section, change.key]] = change.text
        elif change.after is not None and (change.section, change.after) in parts:
            place = parts[change.section, change.after]
            behind[place] = behind.get(place, "") + change.text
        else:
            raise BoardInconsistent(f"revision {item.revision} does not fit the one before it", "liza doctor")
    text = "".join(text + behind.get(place, "") for place, text in enumerate(texts))
    return _check_sha(item, text)


def _check_sha(item: SpoolItem, text: str) -> str:
    if sha(text.encode()) != item.sha:
        raise BoardInconsistent(f"revision {item.revision} is not kept as it was", "liza doctor")
    return text


def diff_entries(
    before: document.Document, after: document.Document, renewed: tuple[tuple[str, str], ...]
) -> tuple[EntryChange, ...] | None:
    """What turns one text into the other, entry by entry; None where only the whole text can say it.

    ``renewed`` are entries to name even where they are the same: heartbeats changed them since the last revision.
    """
    if before.is_whole or after.is_whole:
        return None
    if before.names == after.names:
        touched = set(renewed)
        return tuple(
            EntryChange(*name, now.text)
            for was, now, name in zip(before.parts, after.parts, after.names, strict=True)
            if (was is not now and was.text != now.text) or (touched and name in touched)
        )
    return _diff_added_entries(before, after, set(renewed))


def _diff_added_entries(
    before: document.Document, after: document.Document, touched: set[tuple[str, str]]
) -> tuple[EntryChange, ...] | None:
    """The same, where entries came; None where one went away, moved, or came into a section that had none."""
    old = {name: part.text for name, part in zip(before.names, before.parts, strict=True)}
    found = []
    kept = []
    behind: dict[str, str] = {}
    for (section, key), part in zip(after.names, after.parts, strict=True):
        if (section, key) in old:
            kept.append((section, key))
            behind[section] = key
            if old[section, key] != part.text or (section, key) in touched:
                found.append(EntryChange(section, key, part.text))
        elif part.kind in ("item", "pair") and section in behind:
            found.append(EntryChange(section, key, part.text, after=behind[section]))
        else:
            return None
    return tuple(found) if kept == before.names else None
