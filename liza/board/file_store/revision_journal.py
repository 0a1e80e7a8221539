"""The journal: one line per revision, with the entries that it changed or the whole text.

Each line is a YAML list item in JSON syntax, so that the file can be read from its end. A line with ``void`` says that
the revision before it was not committed. A long journal loses its beginning, which the history has.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from liza.board.revisions import RecordT, RevisionLine, RevisionRecord, format_record
from liza.model.value_classes import decodable
from liza.system import crash_points, files, untrusted_files

MAX_SIZE: Final = 8 << 20
"""Bytes above which the journal loses all but its end."""
ROTATION_INTERVAL: Final = 64
"""Revisions between two tries to shorten a long journal."""
_TAIL_SIZE: Final = 1 << 20  # bytes at the end that stay: edits of old copies may need their revisions
_BLOCK_SIZE: Final = 8192  # bytes of the first read from the end


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
