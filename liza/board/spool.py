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

FULL_EVERY: Final = 64
"""Each so many revisions the whole text is kept, so that a gap cannot reach far."""
IN_FULL: Final = (("", ""),)
"""In the place of the entries that heartbeats changed: what came before is not known, keep the next revision whole."""
_LARGEST: Final = 4 * files.LARGEST
PREVIOUS: Final = "previous"
LIMIT: Final = 64 << 20
"""Bytes; a larger spool is drained by the writer."""


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
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
    entries: tuple[Change, ...] = ()
    full: str | None = None


class Spool:
    """The directory of waiting revisions, and ``base``: the text of the newest one that has left it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._base = directory.with_name("base")
        self._previous = directory.with_name(PREVIOUS)

    def put(self, item: SpoolItem) -> None:
        """Adds a revision."""
        files.swap(self._directory / str(item.revision), msgspec.json.encode(item))

    @files.named()
    def revisions(self) -> list[int]:
        """The revisions that wait, ascending. Raises DiskRefused where no directory stands there."""
        try:
            return sorted(int(path.name) for path in self._directory.iterdir() if path.name.isdecimal())
        except FileNotFoundError:
            return []

    def items(self) -> Iterator[SpoolItem]:
        """The revisions that wait, ascending; one that cannot be read is left out."""
        for revision in self.revisions():
            try:
                yield msgspec.json.decode(files.read(self._directory / str(revision), _LARGEST), type=SpoolItem)
            except (OSError, ValueError, RecursionError):
                continue

    def is_whole(self, revision: int) -> bool:
        """Whether what comes after ``revision`` can be put together from what waits: nothing of it was taken away."""
        waiting = self.revisions()
        if not waiting:
            return self._dropped() == revision
        return waiting[-1] == revision and len(waiting) == revision - waiting[0] + 1

    def has(self, revision: int) -> bool:
        """Whether the text of ``revision`` can be had from here, or was dropped after it had been recorded."""
        dropped = self._dropped()
        if dropped is None and not self.revisions():
            # Nothing is known at all: it may have been recorded.
            return True
        return (dropped or 0) >= revision or any(number == revision for number, _ in self.texts())

    def _dropped(self) -> int | None:
        """The newest revision that was dropped, without reading its text."""
        try:
            with self._base.open("rb") as file:
                return int(file.read(24)[1:].partition(b",")[0])
        except (OSError, ValueError):
            return None

    @files.named()
    def size(self) -> int:
        """Bytes that wait. Raises DiskRefused where no directory stands there."""
        total = 0
        for revision in self.revisions():
            try:
                total += (self._directory / str(revision)).stat().st_size
            except FileNotFoundError:
                continue
        return total

    def base(self) -> tuple[int, str] | None:
        """The newest revision that was dropped, and its text."""
        try:
            revision, text = msgspec.json.decode(files.read(self._base, _LARGEST), type=tuple[int, str])
        except (OSError, ValueError, RecursionError):
            return None
        return revision, text

    def previous(self) -> str | None:
        """The board that the last writer found, heartbeats and all; None where it is not kept or is no text."""
        try:
            return files.read(self._previous, files.LARGEST).decode()
        except (OSError, ValueError):
            return None

    @files.named()
    def drop(self, revision: int) -> None:
        """Lets go of the revisions up to ``revision``; the text of the newest of them stays as the base."""
        newest = None
        for number, text in self.texts():
            if number > revision:
                break
            newest = number, text
        if newest is not None:
            files.swap(self._base, msgspec.json.encode(newest))
        for number in self.revisions():
            if number <= revision:
                (self._directory / str(number)).unlink(missing_ok=True)
                crash_points.point("dropped", "spool")

    @files.named()
    def forget(self, revision: int) -> None:
        """Takes out a revision that never came to be."""
        (self._directory / str(revision)).unlink(missing_ok=True)
        crash_points.point("forgotten", "spool")

    def texts(self) -> Iterator[tuple[int, str]]:
        """Each revision with its text, ascending, from the base on; those that cannot be rebuilt are left out."""
        text, dropped = None, 0
        if (base := self.base()) is not None:
            dropped, text = base
            yield base
        for item in self.items():
            if item.revision <= dropped:
                # A kill between the new base and the last unlink left it; its text would not fit behind the base.
                continue
            text = self._after(text, item)
            if text is not None:
                yield item.revision, text

    def _after(self, text: str | None, item: SpoolItem) -> str | None:
        """The text of a revision: from the one before it, or, where that is lost, from the board before the last."""
        if text is None and item.full is None:
            text = self.previous()
        try:
            return None if text is None and item.full is None else replay(text or "", item)
        except BoardInconsistent:
            return None


_last: document.Document | None = None


def replay(base_text: str, item: SpoolItem) -> str:
    """The text of a revision from the text of the one before it. Raises BoardInconsistent where they do not fit."""
    global _last
    if item.full is not None:
        return _proved(item, item.full)
    known = _last = document.read(base_text, known=_last)
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
    return _proved(item, text)


def _proved(item: SpoolItem, text: str) -> str:
    if sha(text.encode()) != item.sha:
        raise BoardInconsistent(f"revision {item.revision} is not kept as it was", "liza doctor")
    return text


def changes(
    before: document.Document, after: document.Document, renewed: tuple[tuple[str, str], ...]
) -> tuple[Change, ...] | None:
    """What turns one text into the other, entry by entry; None where only the whole text can say it.

    ``renewed`` are entries to name even where they are the same: heartbeats changed them since the last revision.
    """
    if before.is_whole or after.is_whole:
        return None
    if before.names == after.names:
        touched = set(renewed)
        return tuple(
            Change(*name, now.text)
            for was, now, name in zip(before.parts, after.parts, after.names, strict=True)
            if (was is not now and was.text != now.text) or (touched and name in touched)
        )
    return _grown(before, after, set(renewed))


def _grown(
    before: document.Document, after: document.Document, touched: set[tuple[str, str]]
) -> tuple[Change, ...] | None:
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
                found.append(Change(section, key, part.text))
        elif part.kind in ("item", "pair") and section in behind:
            found.append(Change(section, key, part.text, after=behind[section]))
        else:
            return None
    return tuple(found) if kept == before.names else None
