"""The journal: one line per revision, with the entries that it changed or the whole text.

Each line is a YAML list item in JSON syntax, so that the file can be read from its end. A line with ``void`` says that
the revision before it was not committed. A long journal loses its beginning, which the history has.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from liza.board.text.values import Revision
from liza.model.model import State
from liza.model.value_classes import decodable
from liza.system import crash_points, files, untrusted_files

MAX_SIZE: Final = 8 << 20
"""Bytes above which the journal loses all but its end."""
ROTATION_INTERVAL: Final = 64
"""Revisions between two tries to shorten a long journal."""
_TAIL_SIZE: Final = 1 << 20  # bytes at the end that stay: edits of old copies may need their revisions
_BLOCK_SIZE: Final = 8192  # bytes of the first read from the end
_MAX_NAMES: Final = 5  # archived tasks that the line of a revision names


class RevisionRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename={"from_": "from"}):
    """The head of a line: one revision. ``sha256`` is that of the board after it.

    ``void`` names a revision that was not committed, ``archived`` the tasks that the revision moved to the archive.
    """

    revision: Revision = 0
    time: str = ""
    actor: str = ""
    event: str = ""
    task: str | None = None
    from_: str | None = None
    to: str | None = None
    sha256: str = ""
    alerts: tuple[str, ...] = ()
    overwrote: tuple[int, ...] = ()
    archived: tuple[str, ...] = ()
    void: Revision | None = None


class EntryChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """The new text of one entry. ``after`` is the key of the entry before it, if the entry is new."""

    section: str
    key: str
    text: str
    after: str | None = None


class RevisionLine(RevisionRecord, frozen=True, omit_defaults=True):
    """A whole line: with the changed ``entries``, or the ``text`` of the board."""

    entries: tuple[EntryChange, ...] = ()
    text: str | None = None


RecordT = TypeVar("RecordT", bound=RevisionRecord)


def format_record(record: RevisionRecord) -> bytes:
    """Return a record as a line of the file."""
    return b"- " + json.dumps(msgspec.to_builtins(record), ensure_ascii=False).encode() + b"\n"


def _parse_record(text: bytes, kind: type[RecordT]) -> RecordT | None:
    if not text.startswith(b"- "):
        return None
    try:
        record = msgspec.json.decode(memoryview(text)[2:], type=decodable(kind))
    except (ValueError, RecursionError):
        # Not JSON, not UTF-8, or nested too deeply: not a record.
        return None
    return record if record.revision or record.void is not None else None


def append_record(path: Path, record: RevisionRecord) -> None:
    """Append a record with fsync. First turn a torn last line into a comment. Raises WriteFailed.

    A last line that lacks only its newline is a record: readers already accept it as one, so it gets its newline.
    """
    _repair_torn_line(path)
    files.append_synced(path, format_record(record))


def is_long(path: Path) -> bool:
    """Return whether the journal is so long that its older part should move away."""
    try:
        return path.stat().st_size > MAX_SIZE
    except OSError:
        return False


@files.convert_os_errors()
def rotate(path: Path, next_path: Path, recorded: int) -> None:
    """Remove the beginning of a long journal: revisions that the history has. Its end begins with a whole text.

    ``recorded`` is the newest revision in the history, ``next_path`` where the new journal is written. The caller holds
    the lock. Raises WriteFailed.
    """
    descriptor = _open_journal(path, os.O_RDONLY)
    if descriptor is None:
        return
    try:
        size = os.fstat(descriptor).st_size
        start = _find_start(descriptor, size, recorded)
        if start < size // 2:
            # Nearly all of it is still needed: what waits for the history is that long.
            return
        end = os.pread(descriptor, size - start, start)
    finally:
        os.close(descriptor)
    try:
        files.write_synced(next_path, end)
        next_path.rename(path)
    except BaseException:
        next_path.unlink(missing_ok=True)
        raise
    crash_points.point("renamed", "journal")
    files.fsync_directory(path.parent)


def _find_start(descriptor: int, size: int, recorded: int) -> int:
    """Return where the end that stays begins; 0 if all of it has to stay."""
    voided: set[int] = set()
    for offset, text in _lines_backwards(descriptor, size):
        line = _parse_record(text, RevisionLine)
        if line is None:
            continue
        if line.void is not None:
            voided.add(line.void)
        elif line.text is None or line.revision > recorded or line.revision in voided:
            continue
        elif size - offset > _TAIL_SIZE:
            return offset
    return 0


@files.convert_os_errors()
def _open_journal(path: Path, flags: int) -> int | None:
    """Open the journal; None if there is no journal. Raises WriteFailed if it is not a regular file."""
    try:
        return untrusted_files.open_regular(path, flags)
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
        _write_at(descriptor, (b"" if _parse_record(torn, RevisionRecord) else b"# torn: ") + torn + b"\n", start)
        crash_points.point("mended", path.name)
    finally:
        os.close(descriptor)


def _write_at(descriptor: int, data: bytes, offset: int) -> None:
    """Write all of ``data`` at ``offset``. Raises OSError.

    On a nearly full disk pwrite(2) writes a part and reports no error. Without the newline the next record would become
    a part of the comment.
    """
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written


def _lines_backwards(descriptor: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the bytes of each line, the last line first."""
    end, buffer = size, b""
    while end > 0:
        # Double the buffer at each read, so that a very long line is not copied once for each block.
        start = max(0, end - max(_BLOCK_SIZE, len(buffer)))
        buffer = os.pread(descriptor, end - start, start) + buffer
        end = start
        lines = buffer.split(b"\n")
        lines = [text + b"\n" for text in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
        offset = start + len(buffer)
        for text in reversed(lines[1:] if start else lines):
            offset -= len(text)
            yield offset, text
        buffer = lines[0]


def iter_newest_first(path: Path) -> Iterator[RevisionRecord]:
    """Yield the heads of the committed revisions, newest first. A missing file has none. Raises WriteFailed."""
    return _iter_committed(path, RevisionRecord)


def iter_lines(path: Path) -> Iterator[RevisionLine]:
    """Yield the committed revisions with their changes, newest first. Raises WriteFailed."""
    return _iter_committed(path, RevisionLine)


def _iter_committed(path: Path, kind: type[RecordT]) -> Iterator[RecordT]:
    voided: set[int] = set()
    for record in _iter_all(path, kind):
        if record.void is not None:
            voided.add(record.void)
        elif record.revision in voided:
            voided.discard(record.revision)
        else:
            yield record


def _iter_all(path: Path, kind: type[RecordT]) -> Iterator[RecordT]:
    descriptor = _open_journal(path, os.O_RDONLY)
    if descriptor is None:
        return
    try:
        for _, text in _lines_backwards(descriptor, os.fstat(descriptor).st_size):
            if (record := _parse_record(text, kind)) is not None:
                yield record
    finally:
        os.close(descriptor)


def highest_revision(path: Path) -> int:
    """Return the revision of the last record, committed or void; 0 if there is no record."""
    record = next(_iter_all(path, RevisionRecord), None)
    return 0 if record is None else record.revision or record.void or 0


def last_record(path: Path) -> RevisionRecord | None:
    """Return the newest committed record; None if there is no committed record."""
    return next(iter_newest_first(path), None)


def format_subject(record: RevisionRecord) -> str:
    """Return a revision in one line: ``task-3: CLAIMED → READY_FOR_REVIEW (coder-1.7)``."""
    if record.archived:
        names = ", ".join(record.archived[:_MAX_NAMES])
        more = f" and {len(record.archived) - _MAX_NAMES} more" if len(record.archived) > _MAX_NAMES else ""
        return f"{record.event}: {names}{more} ({record.actor})"
    if record.task and record.from_ != record.to and record.to:
        return f"{record.task}: {record.from_ or 'new'} → {record.to} ({record.actor})"
    return f"{record.task}: {record.event} ({record.actor})" if record.task else f"{record.event} ({record.actor})"


def with_statuses(record: RecordT, before: State, after: State) -> RecordT:
    """Return the record with the old and the new status of its task, if the status changed."""
    if record.task is None:
        return record
    old, new = before.task(record.task), after.task(record.task)
    if old is not None and new is not None and old.status is new.status:
        return record
    return msgspec.structs.replace(record, from_=old and old.status.value, to=new and new.status.value)
