"""The files of archived tasks: `.liza/archive/YYYY-MM.yaml`, entries appended as they were on the board.

A move is written ahead: first the intent with the text to append, then the append with fsync, then the commit of the
board, then the intent is deleted. What the board has is not archived, whatever the files say. So a task is in one place
at any moment, and `repair_move` can finish or undo a move that a crash interrupted.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from liza.board.text import document
from liza.board.text.document import Document, Part
from liza.board.text.parse import NeedsSlowPath, Unparsable
from liza.board.text.splitter import Piece, PieceKind, entry_indent
from liza.model.errors import BoardInconsistent, NotRegularFile, Refused
from liza.model.model import State, Task
from liza.model.paths import Paths
from liza.model.value_classes import decodable
from liza.system import atomic, crash_points, files, untrusted_files

MAX_FILE_SIZE: Final = 1 << 20
"""Bytes of a file to which entries are appended; a longer month has more files: 2026-11.yaml, 2026-11.2.yaml, …"""
MAX_READ: Final = 2 * files.MAX_BOARD_SIZE
"""Bytes of an archive file or an intent that is read. One move can be as large as a board."""
INDENT: Final = 2
HEAD: Final = (
    "# Closed tasks that left the board, in the order in which they left. `liza task show ID` shows one of them.\n"
    "# The file may be edited; it is read again then. `liza validate` checks it.\n"
    "tasks:\n"
)
_NAME: Final = re.compile(r"(\d{4}-\d\d)(?:\.([1-9]\d{0,5}))?\.yaml")


class ArchiveMove(msgspec.Struct, frozen=True):
    """Entries to move in a transaction: the tasks ``ids``, their ``text``, and the file ``name`` to append it to."""

    name: str
    text: str
    ids: tuple[str, ...]


class ArchiveIntent(msgspec.Struct, frozen=True):
    """A move under way: ``text`` with the tasks ``ids`` is appended to the file ``name`` of ``size`` bytes."""

    name: str
    size: int
    text: str
    ids: tuple[str, ...]


def list_names(paths: Paths) -> list[str]:
    """Return the names of the archive files, the oldest first. Raises BoardInconsistent if they cannot be read."""
    try:
        names = [name for name in os.listdir(paths.archive) if _NAME.fullmatch(name)]  # noqa: PTH208 - one call
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BoardInconsistent(
            f"{paths.archive} cannot be read: {error.strerror}", _move_away_command(paths.archive)
        ) from None
    return sorted(names, key=_order)


def _move_away_command(path: Path) -> str:
    """Return the command that moves a path away. `liza archive --repair` writes the files again then."""
    return shlex.join(["mv", str(path), f"{path}.odd"])


def sort_key(name: str) -> str:
    """Return a text by which the names of archive files sort in the order in which they were written."""
    month, number = _order(name)
    return f"{month}.{number:06d}"


def _order(name: str) -> tuple[str, int]:
    match = _NAME.fullmatch(name)
    return (match[1], int(match[2] or 1)) if match else (name, 0)


def is_archive_name(name: str) -> bool:
    """Return whether a file of this name belongs to the archive."""
    return _NAME.fullmatch(name) is not None


def choose_name(names: Iterable[str], sizes: dict[str, int], now: datetime, length: int) -> str:
    """Return the file to append ``length`` bytes to: the last one of this month, or a new one if that is full.

    ``sizes`` has the files that can be appended to.
    """
    month = f"{now:%Y-%m}"
    parts = [name for name in names if _order(name)[0] == month]
    if not parts:
        return f"{month}.yaml"
    size = sizes.get(parts[-1])
    if size is not None and (size + length <= MAX_FILE_SIZE or size <= len(HEAD)):
        return parts[-1]
    return f"{month}.{_order(parts[-1])[1] + 1}.yaml"


def movable_texts(board: Document, ids: Iterable[str]) -> dict[str, str]:
    """Return the entries of tasks by id, with their comments, as they are appended to a file.

    Entries that are written in a form that cannot be moved as text are left out. Raises Refused if none can be moved.
    """
    wanted = set(ids)
    parts = [part for part in board.parts if part.section == "tasks" and part.kind is PieceKind.ITEM]
    counts = Counter(part.key for part in parts)
    texts = {part.key: _shifted(part) for part in parts if part.key in wanted and counts[part.key] == 1}
    movable = {task_id: text for task_id, text in texts.items() if text is not None}
    if wanted and not movable:
        raise Refused("the closed tasks are not written as entries that can be moved as text", "liza edit")
    return movable


def _shifted(part: Part) -> str | None:
    """Return the text of an entry with the indentation and the line ends of the archive; None if its value changed."""
    lines = part.text.replace("\r\n", "\n").rstrip("\n").split("\n")
    shift = INDENT - entry_indent(part.text)
    text = "".join(_shift_line(line, shift) + "\n" for line in lines)
    try:
        moved = document.parse_piece(Piece(PieceKind.ITEM, part.section, text))
        if moved.value == part.value:
            return text
    except (NeedsSlowPath, Unparsable):
        pass
    return None


def _shift_line(line: str, shift: int) -> str:
    if not line.strip():
        return line
    return " " * shift + line if shift >= 0 else line.removeprefix(" " * -shift)


# ── the move ─────────────────────────────────────────────────────────────────────────────────────────────────────


def begin_move(paths: Paths, move: ArchiveMove) -> None:
    """Append entries to an archive file, with the intent written ahead. The caller holds the lock of the board.

    Raises Refused, WriteFailed, NotRegularFile.
    """
    path = paths.archive / move.name
    if not is_archive_name(move.name):
        # Readers would not find it: a planted file has the highest number of the month.
        raise Refused(f"the archive cannot have a file {move.name}", f"ls -l {paths.archive}")
    refuse_link(paths)
    with files.convert_os_errors():
        paths.archive.mkdir(mode=0o755, exist_ok=True)
        current = untrusted_files.read_if_exists(path, MAX_READ)
    data = current or b""
    lead = HEAD if not data else "" if data.endswith(b"\n") else "\n"
    intent = ArchiveIntent(move.name, len(data), lead + move.text, move.ids)
    files.write_synced(paths.tx / "archive.next", msgspec.json.encode(intent))
    with files.convert_os_errors():
        (paths.tx / "archive.next").rename(paths.archive_intent)
        crash_points.point("renamed", "archive-intent")
    files.fsync_directory(paths.tx)
    files.append_synced(path, intent.text.encode())
    if current is None:
        files.fsync_directory(paths.archive)
        files.fsync_directory(paths.liza)


def refuse_link(paths: Paths) -> None:
    """Raise Refused if the directory is a link: tasks would leave the project, and a purge would not find them."""
    if paths.archive.is_symlink():
        raise Refused(
            f"{paths.archive} is a link; the archive is a directory of its own", _move_away_command(paths.archive)
        )


def end_move(paths: Paths) -> None:
    """Delete the intent after the commit of the board. If that fails, `repair_move` does it."""
    with suppress(OSError):
        paths.archive_intent.unlink(missing_ok=True)
        crash_points.point("unlinked", "archive-intent")


def read_intent(paths: Paths) -> ArchiveIntent | None:
    """Return the intent of a move under way; None without one. Raises BoardInconsistent if it cannot be read."""
    try:
        data = untrusted_files.read_if_exists(paths.archive_intent, MAX_READ)
        return None if data is None else msgspec.json.decode(data, type=decodable(ArchiveIntent))
    except (OSError, NotRegularFile, ValueError, RecursionError) as error:
        raise BoardInconsistent(
            f"{paths.archive_intent} cannot be read: {error}", f"mv {paths.archive_intent} {paths.archive_intent}.odd"
        ) from None


def repair_move(paths: Paths, state: State) -> None:
    """Finish or undo a move that a crash interrupted. The caller holds the lock; ``state`` is the repaired board.

    If the board still has all moved tasks, the commit failed: what was appended is removed. Else the file must have
    the text: what is missing is appended. A board with some of them was edited since: the others are nowhere else.
    A file that was edited since is left as it is, if it has the tasks. Raises WriteFailed, BoardInconsistent.
    """
    if not paths.archive_intent.exists():
        return
    intent = read_intent(paths)
    if intent is None:
        return
    is_on_board = {task.id for task in state.tasks}.issuperset(intent.ids)
    _undo_append(paths, intent) if is_on_board else _finish_append(paths, intent)
    end_move(paths)


@files.convert_os_errors()
def _undo_append(paths: Paths, intent: ArchiveIntent) -> None:
    path, text = paths.archive / intent.name, intent.text.encode()
    data = untrusted_files.read_if_exists(path, MAX_READ)
    tail = None if data is None else data[intent.size :]
    # Only bytes of this move are removed, in whole or torn.
    if tail is None or not text.startswith(tail):
        return
    if intent.size == 0:
        # In one step: an empty file would be reported as a file that lost its entries.
        path.unlink()
        crash_points.point("unlinked", intent.name)
        files.fsync_directory(paths.archive)
    elif tail:
        _truncate(path, intent.size)


def _truncate(path: Path, size: int) -> None:
    descriptor = untrusted_files.open_regular(path, os.O_RDWR)
    try:
        os.ftruncate(descriptor, size)
        os.fsync(descriptor)
        crash_points.point("truncated", path.name)
    finally:
        os.close(descriptor)


def _finish_append(paths: Paths, intent: ArchiveIntent) -> None:
    path, text = paths.archive / intent.name, intent.text.encode()
    with files.convert_os_errors():
        paths.archive.mkdir(mode=0o755, exist_ok=True)
        data = untrusted_files.read_if_exists(path, MAX_READ) or b""
    tail = data[intent.size :]
    if tail.startswith(text):
        return
    # The board is committed and the file lacks the end, or the file is gone: its text is still in the intent.
    if len(data) >= intent.size and text.startswith(tail):
        missing = text[len(tail) :]
    elif set(intent.ids) <= set(_ID.findall(data.decode(errors="replace"))):
        return
    else:
        # An edit of a copy from before the move: at worst a task is there twice, which is reported.
        lead = HEAD if not data else "" if data.endswith(b"\n") else "\n"
        missing = lead.encode() + text.removeprefix(HEAD.encode())
    files.append_synced(path, missing)
    files.fsync_directory(paths.archive)


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────


class ArchivedEntry(msgspec.Struct, frozen=True):
    """An entry in an archive file: its id, its place in bytes, and its task, or the reason why it cannot be read."""

    id: str
    offset: int
    length: int
    task: Task | None
    error: str = ""


_ENTRY: Final = re.compile(rf"^ {{{INDENT}}}-(?=[ \n]|$)", re.MULTILINE)
_ID: Final = re.compile(r"^[ -]*id:[ ]*[\"']?([\w.-]+)", re.MULTILINE)
_BODY: Final = re.compile(r"^tasks:[ \t]*(?:#.*)?$", re.MULTILINE)


def split_file(data: bytes, start: int = 0) -> list[ArchivedEntry]:
    """Return the entries of a file from the byte ``start``, where an entry begins, or 0. Each is parsed alone.

    Raises NeedsSlowPath if the bytes are no file of archived tasks.
    """
    try:
        text = data[start:].decode()
    except UnicodeDecodeError as error:
        raise NeedsSlowPath(f"it is not UTF-8: {error.reason}") from None
    lowest = 0
    if start == 0:
        body = _BODY.search(text)
        if body is None:
            raise NeedsSlowPath("it has no line `tasks:`")
        lowest = body.end() + 1
    starts = [match.start() for match in _ENTRY.finditer(text, lowest)]
    if _is_content(text[lowest : starts[0] if starts else len(text)]):
        raise NeedsSlowPath("it has something other than entries that begin with two spaces and a dash")
    edges = [
        lowest if start and number == 0 else _comment_start(text, edge, lowest) for number, edge in enumerate(starts)
    ]
    offset = start + len(text[: edges[0] if edges else 0].encode())
    entries = []
    for first, last in pairwise([*edges, len(text)]):
        entries.append(parse_entry(text[first:last], offset))
        offset += entries[-1].length
    return entries


def _is_content(text: str) -> bool:
    return any(line.strip() and not line.lstrip().startswith("#") for line in text.split("\n"))


def _comment_start(text: str, edge: int, lowest: int) -> int:
    """Return the begin of the comments directly above an entry."""
    while edge > lowest:
        above = text.rfind("\n", 0, edge - 1) + 1
        if above < lowest or not text[above:edge].startswith(" " * INDENT + "#"):
            return edge
        edge = above
    return edge


def parse_entry(piece: str, offset: int) -> ArchivedEntry:
    """Return the entry in ``piece``, which begins at the byte ``offset`` of its file."""
    length = len(piece.encode())
    try:
        part = document.parse_piece(Piece(PieceKind.ITEM, "tasks", piece))
        return ArchivedEntry(part.key, offset, length, part.value)
    except (NeedsSlowPath, Unparsable) as error:
        match = _ID.search(piece)
        return ArchivedEntry(match[1] if match else "", offset, length, None, str(error) or "it cannot be parsed")


class Rewrite(msgspec.Struct, frozen=True):
    """A change of the file ``name`` from the bytes ``before`` to the bytes ``after``."""

    name: str
    before: bytes
    after: bytes


def comment_out(paths: Paths, name: str, offsets: Iterable[int]) -> Rewrite:
    """Return the change that turns the entries that begin at these bytes of a file into comments.

    Raises BoardInconsistent, also if another entry would read differently.
    """
    unwanted = set(offsets)
    before = read_bytes(paths, name)
    try:
        entries = split_file(before)
    except NeedsSlowPath as error:
        raise BoardInconsistent(f".liza/archive/{name} has changed meanwhile: {error}", "liza validate") from None
    after = before[: entries[0].offset] if entries else before
    for entry in entries:
        piece = before[entry.offset : entry.offset + entry.length]
        after += _as_comment(entry.id, piece) if entry.offset in unwanted else piece
    kept = [(entry.id, entry.task) for entry in entries if entry.offset not in unwanted]
    if [(entry.id, entry.task) for entry in split_file(after)] != kept:
        raise BoardInconsistent(
            f".liza/archive/{name}: no entry can become a comment without changing another one",
            shlex.join(["ls", "-l", str(paths.archive / name)]),
        )
    return Rewrite(name, before, after)


def rewrite(paths: Paths, change: Rewrite) -> None:
    """Write a changed file. The caller holds the lock of the board. Raises BoardInconsistent, WriteFailed."""
    path = paths.archive / change.name
    if _has_changed(paths, change):
        raise BoardInconsistent(f".liza/archive/{change.name} has changed meanwhile", "liza archive --repair")
    with files.convert_os_errors():
        atomic.write_from(paths.tx, path, change.after, path.stat().st_mode & 0o777)
    files.fsync_directory(paths.archive)


def _has_changed(paths: Paths, change: Rewrite) -> bool:
    return read_bytes(paths, change.name) != change.before


def _as_comment(task_id: str, piece: bytes) -> bytes:
    lines = piece.rstrip(b"\n").split(b"\n")
    head = f"# A former copy of {task_id}; its last entry counts:\n".encode()
    return head + b"".join(b"#" + line + b"\n" for line in lines)


def read_bytes(paths: Paths, name: str) -> bytes:
    """Return the bytes of an archive file. Raises BoardInconsistent if it cannot be read."""
    path = paths.archive / name
    try:
        return untrusted_files.read(path, MAX_READ)
    except (OSError, NotRegularFile) as error:
        raise BoardInconsistent(f".liza/archive/{name} cannot be read: {error}", f"ls -l {path}") from None
