"""What an archive file lost since it was recorded: it cannot be read, it is cut off, or entries are gone. Pure."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from contextlib import suppress
from typing import Final

import msgspec
from msgspec.structs import replace

from liza.board import archive_files
from liza.board.text.parse import NeedsSlowPath
from liza.model.model import FINAL_STATUSES
from liza.text.counts import count_noun

MAX_NAMES: Final = 5
"""Lost entries that a message names."""
_COMMENTED_ID: Final = re.compile(r"^[ ]*#[# -]*id:[ ]*[\"']?([\w.-]+)", re.MULTILINE)

_FORMER_COPY: Final = re.compile(r"^# A former copy of ([\w.-]+);", re.MULTILINE)


class ArchiveLoss(msgspec.Struct, frozen=True):
    """Why a file is damaged, and the ids of the entries that are gone, as far as the recorded version has them.

    ``is_complete``: the file lost these entries and nothing else. ``is_recorded``: the history has a version of it.
    """

    reason: str
    ids: frozenset[str] = frozenset()
    is_complete: bool = False
    is_recorded: bool = True


_MISSING: Final = "it is missing"


def find_missing_loss(recorded: bytes | None) -> ArchiveLoss | None:
    """Return what is lost with a missing file; None if its recorded version has no entries."""
    if recorded is None or not is_readable(recorded):
        return ArchiveLoss(_MISSING)
    ids = list_ids(recorded)
    return ArchiveLoss(_MISSING, ids, is_complete=True) if ids else None


def subtract(loss: ArchiveLoss, present: Container[str]) -> ArchiveLoss | None:
    """Return the loss without the entries ``present``, which are elsewhere; None if nothing is left of it."""
    gone = frozenset(task_id for task_id in loss.ids if task_id not in present)
    if not loss.is_complete or gone == loss.ids:
        return loss
    if not gone:
        return None
    return replace(loss, ids=gone) if loss.reason == _MISSING else lost_entries(gone)


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
        text = f"it cannot be read as an archive: {error}"
        return ArchiveLoss(text, frozenset(before), is_recorded=recorded is not None)
    gone = before.keys() - now.keys() - find_commented(present.decode(errors="replace"))
    is_cut = recorded is not None and recorded.startswith(present) and before != now
    if recorded is not None and is_cut and (gone or not _is_whole(present)):
        text = f"it is cut off after {count_noun(len(present), 'byte')} of {len(recorded)}"
        is_between = all(before.get(task_id) == task for task_id, task in now.items())
        return ArchiveLoss(text, frozenset(gone), is_complete=is_between)
    return lost_entries(gone) if gone else None


def _is_whole(data: bytes) -> bool:
    """Return whether the last entry is one of a closed task, as after a person deleted its last lines."""
    entries = archive_files.split_file(data)
    last = entries[-1].task if entries else None
    return data.endswith(b"\n") and last is not None and last.status in FINAL_STATUSES


def _is_appended(recorded: bytes, present: bytes) -> bool:
    """Return whether entries, or nothing, were appended to a file, as by every move. Only these are parsed."""
    if b"tasks:" not in recorded or not present.startswith(recorded):
        return False
    try:
        archive_files.split_file(present, len(recorded))
    except NeedsSlowPath:
        return False
    return True


def find_commented(text: str) -> set[str]:
    """Return the ids of the entries that a person turned into comments. `liza archive --repair` does it with copies."""
    return set(_COMMENTED_ID.findall(text)) - set(_FORMER_COPY.findall(text))


def lost_entries(ids: Iterable[str]) -> ArchiveLoss:
    """Return the loss of these entries."""
    gone = sorted(ids)
    more = f" and {len(gone) - MAX_NAMES} more" if len(gone) > MAX_NAMES else ""
    return ArchiveLoss(f"it lacks {', '.join(gone[:MAX_NAMES])}{more}, which the history has", frozenset(gone), True)


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
