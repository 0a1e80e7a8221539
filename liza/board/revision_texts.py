"""The texts of revisions: rebuilt from the lines of a journal, and compared. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from liza.board.revisions import EntryChange, RevisionLine, sha
from liza.board.text.document import Document, read_document
from liza.board.text.splitter import PieceKind
from liza.model.errors import LizaError

FULL_TEXT_INTERVAL: Final = 64
"""Every so many revisions a line has the whole text, so that a damaged line affects at most this many revisions."""
NEWEST: Final = 1 << 62
"""For ``rebuild_texts``: only what the newest text needs."""
_COMMENTS: Final = re.compile(r"(?: *#.*\n)*")
_VOLATILE_LINE: Final = re.compile(r"\s*(?:- )?(?:lease_expires|review_lease_expires|heartbeat|revision):")
_MAX_DIFF: Final = 64 << 10  # characters


# ── texts ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def rebuild_texts(
    newest_first: Iterable[RevisionLine], since: int = 0, base: tuple[int, str] | None = None
) -> Iterator[tuple[RevisionLine, str]]:
    """Yield the committed revisions with their texts, ascending, at least from ``since`` on.

    They are built on ``base``, a revision with its text, or on the newest whole text up to ``since``: no more lines are
    taken. A revision that cannot be rebuilt is left out: its sha256 differs.
    """
    lines: list[RevisionLine] = []
    for line in newest_first:
        if base is not None and line.revision <= base[0]:
            break
        lines.append(line)
        if line.text is not None and line.revision <= since:
            break
    before = None if base is None else base[1]
    document: Document | None = None  # of the revision before, whose parts need no new parsing
    while lines:
        line = lines.pop()
        text = line.text
        if text is None and before is not None:
            document = _read_or_none(before, document)
            text = None if document is None else apply_changes(document, line.entries)
        before = text if text is not None and sha(text.encode()) == line.sha256 else None
        if before is not None:
            yield line, before


def newest_text(newest_first: Callable[[], Iterable[RevisionLine]]) -> tuple[int, str] | None:
    """Return the newest revision that can be rebuilt, and its text; None without one."""
    for since in (NEWEST, 0):
        texts = [(line.revision, text) for line, text in rebuild_texts(newest_first(), since)]
        if texts:
            return texts[-1]
    return None


def _read_or_none(text: str, previous: Document | None) -> Document | None:
    try:
        return read_document(text, previous=previous)
    except LizaError:
        return None


def apply_changes(before: Document, entries: tuple[EntryChange, ...]) -> str | None:
    """Return the text of a board after changes; None if it lacks an entry that they change."""
    parts = {name: index for index, name in enumerate(before.names)}
    texts = [part.text for part in before.parts]
    added: dict[int, str] = {}  # text of new entries, by the index of the part before them
    for change in entries:
        index = parts.get((change.section, change.key if change.after is None else change.after))
        if index is None:
            return None
        if change.after is None:
            if _is_first_entry(before, index):
                # Older versions put comments above the first entry into the entry, which now belong to the head.
                texts[index - 1] = texts[index - 1].removesuffix(_leading_comments(change.text))
            texts[index] = change.text
        else:
            added[index] = added.get(index, "") + change.text
    return "".join(text + added.get(index, "") for index, text in enumerate(texts))


def _is_first_entry(board: Document, index: int) -> bool:
    entries = (PieceKind.ITEM, PieceKind.PAIR)
    return board.parts[index].kind in entries and board.parts[index - 1].kind is PieceKind.TEXT


def _leading_comments(text: str) -> str:
    match = _COMMENTS.match(text)
    return match[0] if match else ""


# ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def diff_entries(
    before: Document, after: Document, renewed: tuple[tuple[str, str], ...]
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
    before: Document, after: Document, renewed: set[tuple[str, str]]
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


# ── for people ───────────────────────────────────────────────────────────────────────────────────────────────────────


def diff_texts(newest: str, edited: str) -> str:
    """Return a unified diff without lease times, at most 64 K characters."""
    old, new = _stable_lines(newest), _stable_lines(edited)
    start = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(0, start - 3)
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    end = max(0, end - 3)

    lines = difflib.unified_diff(
        old[start : len(old) - end], new[start : len(new) - end], "before", "after", n=2, lineterm=""
    )
    text = "\n".join(lines)
    return text if len(text) <= _MAX_DIFF else text[:_MAX_DIFF] + "\n… the rest is in history"


def _stable_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if not _VOLATILE_LINE.match(line)]
