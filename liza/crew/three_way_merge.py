"""Merge a person's edit of a copy of the board with changes made to the board meanwhile."""

from __future__ import annotations

from liza.board.text import document
from liza.board.text.document import Document
from liza.rules.errors import Refused

EntryKey = tuple[str, str]


def merge_edits(base: str, mine: str, now: str) -> str:
    """Apply the changes from ``base`` to ``mine`` to ``now``, entry by entry; comments and order stay as typed.

    Raises Refused if an entry changed on both sides (the message shows both), BoardUnreadable if a text is not a board.
    """
    if now in (base, mine):
        return mine
    documents = [document.read_document(text) for text in (base, mine, now)]
    if any(text.is_whole for text in documents):
        raise Refused("the board changed meanwhile, and its text cannot be split into entries", "liza edit")
    old, typed, current = (_entries(text) for text in documents)
    merged: dict[EntryKey, str] = {}
    for key in current:
        text = _merge_entry(key, old.get(key), typed.get(key), current[key])
        if text is not None:
            merged[key] = text
    for key in typed:
        if key not in current and key in old and typed[key] != old[key]:
            raise _conflict_error(key, typed[key], "(gone)")
    return "".join(_insert_added(merged, old, typed))


def _entries(board: Document) -> dict[EntryKey, str]:
    return {name: part.text for name, part in zip(board.names, board.parts, strict=True)}


def _merge_entry(key: EntryKey, old: str | None, typed: str | None, now: str) -> str | None:
    if typed == old:
        return now
    if now in (old, typed):
        return typed
    raise _conflict_error(key, typed if typed is not None else "(taken out)", now)


def _insert_added(merged: dict[EntryKey, str], old: dict[EntryKey, str], typed: dict[EntryKey, str]) -> list[str]:
    """Return the texts in order; an added entry follows the entry after which it was typed."""
    order = list(merged)
    previous: EntryKey | None = None
    for key in typed:
        if key not in merged and key not in old:
            merged[key] = typed[key]
            order.insert(order.index(previous) + 1 if previous is not None else 0, key)
        if key in merged:
            previous = key
    return [merged[key] for key in order]


def _conflict_error(key: EntryKey, mine: str, now: str) -> Refused:
    name = " ".join(word for word in key if word)
    return Refused(
        f"{name} was changed by another process meanwhile; nothing was written.\nyours:\n{mine}now:\n{now}".rstrip(),
        "liza edit",
    )
