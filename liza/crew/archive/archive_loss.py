"""What an archive file lost since it was recorded: it cannot be read, it is cut off, or entries are gone. Pure."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from contextlib import suppress
from typing import Final

import msgspec

from liza.board import archive_files
from liza.board.text.parse import NeedsSlowPath
from liza.rules.formatting.counts import count_noun
from liza.rules.lazy_pattern import lazy_pattern

MAX_NAMES: Final = 5
"""Lost entries that a message names."""
_COMMENTED_ID: Final = lazy_pattern(r"^[ ]*#[# -]*id:[ ]*[\"']?([\w.-]+)", re.MULTILINE)

_FORMER_COPY: Final = lazy_pattern(r"^# A former copy of ([\w.-]+);", re.MULTILINE)


class ArchiveLoss(msgspec.Struct, frozen=True):
    """Why a file is damaged, and the ids of the entries that are gone, as far as the recorded version has them."""

    reason: str
    ids: frozenset[str] = frozenset()


MISSING: Final = ArchiveLoss("it is missing")


def find_loss(recorded: bytes | None, present: bytes) -> ArchiveLoss | None:
    """Return what the bytes ``present`` of a file lost against its recorded version; None if it lost nothing.

    An entry that a person turned into a comment is not lost.
    """
    if recorded is not None and _is_appended(recorded, present):
        return None
    before = _read_entries(recorded)
    try:
        now = {entry.id: entry.task for entry in archive_files.split_file(present) if entry.id}
    except NeedsSlowPath as error:
        return ArchiveLoss(f"it cannot be read as an archive: {error}", frozenset(before))
    gone = before.keys() - now.keys() - _find_commented(present.decode(errors="replace"))
    if recorded is not None and recorded.startswith(present) and before != now:
        text = f"it is cut off after {count_noun(len(present), 'byte')} of {len(recorded)}"
        return ArchiveLoss(text, frozenset(gone))
    return lost_entries(gone) if gone else None


def _is_appended(recorded: bytes, present: bytes) -> bool:
    """Return whether entries, or nothing, were appended to a file, as by every move. Only these are parsed."""
    if b"tasks:" not in recorded or not present.startswith(recorded):
        return False
    try:
        archive_files.split_file(present, len(recorded))
    except NeedsSlowPath:
        return False
    return True


def _find_commented(text: str) -> set[str]:
    """Return the ids of the entries that a person turned into comments. `liza archive --repair` does it with copies."""
    return set(_COMMENTED_ID.findall(text)) - set(_FORMER_COPY.findall(text))


def lost_entries(ids: Iterable[str]) -> ArchiveLoss:
    """Return the loss of these entries."""
    gone = sorted(ids)
    more = f" and {len(gone) - MAX_NAMES} more" if len(gone) > MAX_NAMES else ""
    return ArchiveLoss(f"it lacks {', '.join(gone[:MAX_NAMES])}{more}, which the history has", frozenset(gone))


def is_readable(data: bytes) -> bool:
    """Return whether the bytes are a file of archived tasks. Single entries may have errors."""
    with suppress(NeedsSlowPath):
        archive_files.split_file(data)
        return True
    return False


def list_ids(data: bytes) -> frozenset[str]:
    """Return the ids of the entries; none if the bytes are no file of archived tasks."""
    return frozenset(_read_entries(data))


def add_entries(present: bytes, recorded: bytes, ids: Container[str]) -> bytes:
    """Return the bytes ``present`` with the entries of the tasks ``ids`` appended from the recorded version."""
    result = present if present.endswith(b"\n") else present + b"\n"
    for entry in archive_files.split_file(recorded):
        if entry.id in ids:
            result += recorded[entry.offset : entry.offset + entry.length].rstrip(b"\n") + b"\n"
    return result


def _read_entries(data: bytes | None) -> dict[str, object]:
    with suppress(NeedsSlowPath):
        return {entry.id: entry.task for entry in archive_files.split_file(data or b"") if entry.id}
    return {}
