"""The journal: one entry a revision, appended, never rewritten.

Each entry is one line of YAML that is JSON too, so that its tail is read without the rest. A line of its own says
``void`` after an entry whose revision never came to be.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from liza.board.text.values import Revision
from liza.rules.model import State
from liza.system import crash_points, files

_BLOCK_SIZE: Final = 8192


class RevisionRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename={"from_": "from"}):
    """What one revision did. ``sha256`` is that of the board after it; ``void`` names a revision that never was."""

    revision: Revision = 0
    time: str = ""
    actor: str = ""
    event: str = ""
    task: str | None = None
    from_: str | None = None
    to: str | None = None
    sha256: str = ""
    diff: str | None = None
    alerts: tuple[str, ...] = ()
    overwrote: tuple[int, ...] = ()
    void: Revision | None = None


def format_record(record: RevisionRecord) -> bytes:
    """A record as it stands in the file."""
    return b"- " + json.dumps(msgspec.to_builtins(record), ensure_ascii=False).encode() + b"\n"


def _parse_record(text: bytes) -> RevisionRecord | None:
    if not text.startswith(b"- "):
        return None
    try:
        found = msgspec.json.decode(text[2:], type=RevisionRecord)
    except (ValueError, RecursionError):
        # No JSON, no letters, too deep: whatever wrote it, it is no entry.
        return None
    return found if found.revision or found.void is not None else None


def append_record(path: Path, record: RevisionRecord) -> None:
    """Appends a record and waits for the disk; what a crash left half written becomes a comment first.

    A last line that is whole but for its end is an entry, for everybody has read it as one.
    """
    _repair_torn_line(path)
    files.append_synced(path, format_record(record))


@files.convert_os_errors()
def _open_journal(path: Path, flags: int) -> int | None:
    """The journal, where there is one. Raises DiskRefused where it is no file."""
    try:
        return files.open_no_follow(path, flags)
    except FileNotFoundError:
        return None


@files.convert_os_errors()
def _repair_torn_line(path: Path) -> None:
    descriptor = _open_journal(path, os.O_RDWR)
    if descriptor is None:
        return
    try:
        size = os.fstat(descriptor).st_size
        if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n":
            return
        start = next(_lines_backwards(descriptor, size))[0]
        torn = os.pread(descriptor, size - start, start)
        os.pwrite(descriptor, (b"" if _parse_record(torn) else b"# torn: ") + torn + b"\n", start)
        crash_points.point("mended", path.name)
    finally:
        os.close(descriptor)


def _lines_backwards(descriptor: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Where each line starts and what it says, from the last."""
    end, held = size, b""
    while end > 0:
        # As much again as is held: a line without an end, however long, is not put together anew at each step.
        start = max(0, end - max(_BLOCK_SIZE, len(held)))
        held = os.pread(descriptor, end - start, start) + held
        end = start
        lines = held.split(b"\n")
        lines = [text + b"\n" for text in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
        place = start + len(held)
        for text in reversed(lines[1:] if start else lines):
            place -= len(text)
            yield place, text
        held = lines[0]


def iter_newest_first(path: Path) -> Iterator[RevisionRecord]:
    """Records from the newest to the oldest, those that never came to be left out. A missing file has none."""
    descriptor = _open_journal(path, os.O_RDONLY)
    if descriptor is None:
        return
    voided: set[int] = set()
    try:
        for _, text in _lines_backwards(descriptor, os.fstat(descriptor).st_size):
            record = _parse_record(text)
            if record is None:
                continue
            if record.void is not None:
                voided.add(record.void)
            elif record.revision in voided:
                voided.discard(record.revision)
            else:
                yield record
    finally:
        os.close(descriptor)


def highest_revision(path: Path) -> int:
    """The highest revision that was ever written down, void or not; 0 for none."""
    descriptor = _open_journal(path, os.O_RDONLY)
    if descriptor is None:
        return 0
    try:
        for _, text in _lines_backwards(descriptor, os.fstat(descriptor).st_size):
            record = _parse_record(text)
            if record is not None:
                return record.revision or record.void or 0
    finally:
        os.close(descriptor)
    return 0


def last_record(path: Path) -> RevisionRecord | None:
    """The newest record that came to be."""
    return next(iter_newest_first(path), None)


def format_subject(record: RevisionRecord) -> str:
    """What a revision did, in one line: ``task-3: CLAIMED → READY_FOR_REVIEW (coder-1.7)``."""
    if record.task and record.from_ != record.to and record.to:
        return f"{record.task}: {record.from_ or 'new'} → {record.to} ({record.actor})"
    return f"{record.task}: {record.event} ({record.actor})" if record.task else f"{record.event} ({record.actor})"


def with_statuses(record: RevisionRecord, before: State, after: State) -> RevisionRecord:
    """The record with the statuses that its task went from and to, where it did."""
    if record.task is None:
        return record
    old, new = before.task(record.task), after.task(record.task)
    if old is not None and new is not None and old.status is new.status:
        return record
    return msgspec.structs.replace(record, from_=old and old.status.value, to=new and new.status.value)
