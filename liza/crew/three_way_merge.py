"""What somebody typed into a copy of the board, brought together with what happened to the board meanwhile."""

from __future__ import annotations

from liza.board.text import document
from liza.board.text.document import Document
from liza.rules.errors import Refused

EntryKey = tuple[str, str]


def merge_edits(base: str, mine: str, now: str) -> str:
    """``now`` with what changed from ``base`` to ``mine``, entry by entry; comments and order stay as typed.

    Raises Refused where an entry changed on both sides, showing both; BoardUnreadable for a text that is no board.
    """
    if now in (base, mine):
        return mine
    texts = [document.read_document(text) for text in (base, mine, now)]
    if any(one.is_whole for one in texts):
        raise Refused("the board changed meanwhile, and its text does not come apart into entries", "liza edit")
    old, typed, standing = (_entries(one) for one in texts)
    kept: dict[EntryKey, str] = {}
    for key in standing:
        text = _merge_entry(key, old.get(key), typed.get(key), standing[key])
        if text is not None:
            kept[key] = text
    for key in typed:
        if key not in standing and key in old and typed[key] != old[key]:
            raise _conflict_error(key, typed[key], "(gone)")
    return "".join(_insert_added(kept, old, typed))


def _entries(board: Document) -> dict[EntryKey, str]:
    return {name: part.text for name, part in zip(board.names, board.parts, strict=True)}


def _merge_entry(key: EntryKey, old: str | None, typed: str | None, now: str) -> str | None:
    if typed == old:
        return now
    if now in (old, typed):
        return typed
    raise _conflict_error(key, typed if typed is not None else "(taken out)", now)


def _insert_added(kept: dict[EntryKey, str], old: dict[EntryKey, str], typed: dict[EntryKey, str]) -> list[str]:
    """The texts in order; what was added stands behind what it was typed behind."""
    order = list(kept)
    before: EntryKey | None = None
    for key in typed:
        if key not in kept and key not in old:
            kept[key] = typed[key]
            order.insert(order.index(before) + 1 if before is not None else 0, key)
        if key in kept:
            before = key
    return [kept[key] for key in order]


def _conflict_error(key: EntryKey, mine: str, now: str) -> Refused:
    name = " ".join(word for word in key if word)
    return Refused(
        f"{name} was changed by somebody else meanwhile; nothing was written.\nyours:\n{mine}now:\n{now}".rstrip(),
        "liza edit",
    )
