"""The files of archived tasks: `.liza/archive/YYYY-MM.yaml`, with the entries as they were on the board.

A move replaces the file of the month in one step before the board without the tasks is written. What the board has is
not archived, whatever the files say, so a task is in one place at any moment, also after a crash between the two steps.
Of several entries of a task the last one counts.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Final

from liza.board.archived_entries import HEAD, REPAIR, ArchivedEntry, ArchiveFault, parse_entry, split_text
from liza.board.contract import RestoredArchive
from liza.board.rules import archiving
from liza.board.rules.archiving import ArchiveTotals
from liza.board.stored_board import StoredBoard
from liza.board.text.parse import NeedsSlowPath
from liza.model.errors import BoardInconsistent, NotRegularFile, Refused
from liza.model.model import State, Task
from liza.model.paths import Paths
from liza.system import atomic, crash_points, files, untrusted_files
from liza.text.formats import count_noun

MAX_FILE_SIZE: Final = 1 << 20
"""Bytes of a file to which entries are appended; a longer month has more files: 2026-11.yaml, 2026-11.2.yaml, …"""
MAX_READ: Final = 2 * files.MAX_BOARD_SIZE
"""Bytes of an archive file that is read. One move can be as large as a board."""
_NAME: Final = re.compile(r"(\d{4}-\d\d)(?:\.([1-9]\d{0,5}))?\.yaml")
_MERGE: Final = re.compile(r"merge_commit[\"']?:[ ]*[\"']?([0-9a-f]{40,64})")
_FORMER_COPY: Final = re.compile(r"^# A former copy of ([\w.-]+);", re.MULTILINE)
"""Above an entry that version 0.1 turned into a comment, since a later one of the task counts."""
_COMMENTED_ID: Final = re.compile(r"^[ ]*#[# -]*id:[ ]*[\"']?([\w.-]+)", re.MULTILINE)


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────


def list_names(paths: Paths) -> list[str]:
    """Return the names of the archive files, the oldest first. Raises BoardInconsistent if they cannot be read."""
    try:
        return sorted((path.name for path in paths.archive.iterdir() if is_archive_name(path.name)), key=_order)
    except FileNotFoundError:
        return []
    except OSError as error:
        command = move_away_command(paths.archive)
        raise BoardInconsistent(f"{paths.archive} cannot be read: {error.strerror}", command) from None


def is_archive_name(name: str) -> bool:
    """Return whether a file of this name belongs to the archive."""
    return _NAME.fullmatch(name) is not None


def move_away_command(path: Path) -> str:
    """Return the command that moves a path away. `liza archive --repair` writes the files again then."""
    return shlex.join(["mv", str(path), f"{path}.odd"])


def _order(name: str) -> tuple[str, int]:
    match = _NAME.fullmatch(name)
    return (match[1], int(match[2] or 1)) if match else (name, 0)


def choose_name(paths: Paths, now: datetime, length: int) -> str:
    """Return the file to append ``length`` bytes to: the last one of this month, or a new one if that is full or
    cannot be read. Raises BoardInconsistent, Refused if no reader would find the new one.
    """
    month = f"{now:%Y-%m}"
    parts = [(name, text) for name, text in _read_all(paths).items() if _order(name)[0] == month]
    if not parts:
        return f"{month}.yaml"
    name, text = parts[-1]
    size = len(text.text.encode())
    if not text.error and (size + length <= MAX_FILE_SIZE or size <= len(HEAD)):
        return name
    following = f"{month}.{_order(name)[1] + 1}.yaml"
    if not is_archive_name(following):
        raise Refused(f"the archive cannot have a file {following}", f"ls -l {paths.archive}")
    return following


# ── the move ─────────────────────────────────────────────────────────────────────────────────────────────────────


def append_entries(paths: Paths, name: str, moved: Mapping[str, str]) -> None:
    """Append the entries ``moved``, by task, to an archive file.

    The caller holds the lock and then writes the board without the tasks.

    Entries of these tasks that the file has already, of a move that failed or of a board that was restored, go.
    Raises Refused, BoardInconsistent, WriteFailed.
    """
    refuse_link(paths)
    before = read_text(paths, name) if name in list_names(paths) else HEAD
    kept = before if before.endswith("\n") else before + "\n"
    pieces = split_text(kept)
    if any(piece_id in moved for piece_id, _ in pieces):
        head = kept[: len(kept) - sum(len(piece) for _, piece in pieces)]
        kept = head + "".join(piece for piece_id, piece in pieces if piece_id not in moved)
    write_file(paths, name, kept + "".join(moved.values()))


def write_file(paths: Paths, name: str, text: str) -> None:
    """Replace an archive file in one step, with fsync. The caller holds the lock of the board. Raises WriteFailed."""
    path = paths.archive / name
    with files.convert_os_errors():
        is_new = not paths.archive.exists()
        paths.archive.mkdir(mode=0o755, exist_ok=True)
        source = path if path.exists() else paths.archive
        atomic.write_from(paths.tx, path, text.encode(), source.stat().st_mode & 0o666)
    files.fsync_directory(paths.archive)
    if is_new:
        files.fsync_directory(paths.liza)


def refuse_link(paths: Paths) -> None:
    """Raise Refused if the directory is a link: tasks would leave the project, and a purge would not find them."""
    if paths.archive.is_symlink():
        command = move_away_command(paths.archive)
        raise Refused(f"{paths.archive} is a link; the archive is a directory of its own", command)


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────


class _ArchiveText:
    """A file as it was read: its entries as text by position, and those that were parsed. ``error``: it has none."""

    def __init__(self, stamp: files.Stamp | None, text: str, error: str = "") -> None:
        self.stamp, self.text, self.error = stamp, text, error
        self.pieces: list[tuple[str, str]] = []
        if not error:
            try:
                self.pieces = split_text(text)
            except NeedsSlowPath as fault:
                self.error = str(fault)
        self._entries: dict[int, ArchivedEntry] = {}

    def entry(self, index: int) -> ArchivedEntry:
        """Return an entry, parsed once."""
        if index not in self._entries:
            self._entries[index] = parse_entry(*self.pieces[index])
        return self._entries[index]


_texts: dict[Path, _ArchiveText] = {}
"""Cache: the files that this process has read, each as long as its stamp is the same."""


def _read_all(paths: Paths) -> dict[str, _ArchiveText]:
    """Return all files by name, the oldest first. Only those that changed are read. Raises BoardInconsistent."""
    texts = {}
    for name in list_names(paths):
        path = paths.archive / name
        with files.convert_os_errors():
            stamp = files.read_stamp(path)
        cached = _texts.get(path)
        if cached is None or cached.stamp != stamp:
            try:
                cached = _ArchiveText(stamp, read_text(paths, name))
            except BoardInconsistent as error:
                cached = _ArchiveText(stamp, "", error.message)
            _texts[path] = cached
        texts[name] = cached
    return texts


def read_files(paths: Paths) -> dict[str, bytes]:
    """Return the content of the files by name. Raises BoardInconsistent."""
    return {name: text.text.encode() for name, text in _read_all(paths).items()}


def read_text(paths: Paths, name: str) -> str:
    """Return the text of an archive file. Raises BoardInconsistent if it cannot be read."""
    path = paths.archive / name
    try:
        return untrusted_files.read(path, MAX_READ).decode()
    except UnicodeDecodeError as error:
        raise BoardInconsistent(f".liza/archive/{name} is not UTF-8: {error.reason}", REPAIR) from None
    except (OSError, NotRegularFile) as error:
        raise BoardInconsistent(f".liza/archive/{name} cannot be read: {error}", f"ls -l {path}") from None


# ── looking up ───────────────────────────────────────────────────────────────────────────────────────────────────


def list_ids(paths: Paths) -> list[str]:
    """Return the ids of the tasks in the files that can be read. Raises BoardInconsistent."""
    return list(dict.fromkeys(task_id for text in _read_all(paths).values() for task_id, _ in text.pieces if task_id))


def find_commented(paths: Paths) -> set[str]:
    """Return the ids of the entries that a person turned into comments."""
    texts = [text.text for text in _read_all(paths).values()]
    return {task_id for text in texts for task_id in set(_COMMENTED_ID.findall(text)) - set(_FORMER_COPY.findall(text))}


# ── lost and damaged entries ─────────────────────────────────────────────────────────────────────────────────────


def restore_entries(
    paths: Paths, recorded: Mapping[str, str], on_board: Collection[str], now: datetime
) -> RestoredArchive:
    """Write the entries of ``recorded``, files by name, that are nowhere now. An unreadable file becomes a copy.

    The caller holds the lock of the board. Raises BoardInconsistent, WriteFailed.
    """
    copies = [_rename_damaged(paths, name, now) for name in list_names(paths) if _read_if_readable(paths, name) is None]
    present_ids = {*list_ids(paths), *find_commented(paths)}
    names = list[str]()
    for name, text in recorded.items():
        lost = {task_id: piece for task_id, piece in split_text(text) if task_id not in present_ids | {*on_board}}
        if lost:
            present = _read_if_readable(paths, name) or HEAD
            whole = present if present.endswith("\n") else present + "\n"
            write_file(paths, name, whole + "".join(lost.values()))
            names.append(name)
            present_ids |= lost.keys()
    return RestoredArchive(tuple(names), tuple(copies), frozenset(present_ids))


def _read_if_readable(paths: Paths, name: str) -> str | None:
    """Return the text of an archive file; None if it is missing or not a list of archived tasks."""
    with suppress(BoardInconsistent, NeedsSlowPath):
        text = read_text(paths, name)
        split_text(text)
        return text
    return None


def _rename_damaged(paths: Paths, name: str, now: datetime) -> Path:
    """Rename an unreadable file, and return its new path. Raises WriteFailed."""
    path, stamp = paths.archive / name, f"{now:%Y%m%dT%H%M%S}"
    copies = (path.with_name(f"{name}.damaged-{stamp}{f'.{number}' if number else ''}") for number in count())
    copy = next(free for free in copies if not os.path.lexists(free))
    with files.convert_os_errors():
        path.rename(copy)
    crash_points.point("renamed", f"{name}.damaged")
    return copy


# ── the questions of a board ─────────────────────────────────────────────────────────────────────────────────────


class ArchiveFiles(StoredBoard):
    """The part of a board in files that answers questions about archived tasks."""

    def archived(self, ids: Container[str]) -> dict[str, ArchivedEntry]:
        places = {
            task_id: (text, index)
            for text in _read_all(self.paths).values()
            for index, (task_id, _) in enumerate(text.pieces)
            if task_id in ids
        }
        return {task_id: text.entry(index) for task_id, (text, index) in places.items()}

    def archived_ids(self) -> list[str]:
        return list_ids(self.paths)

    def archived_tasks(self) -> Iterator[Task]:
        # Each is parsed when it is its turn.
        seen: set[str] = set()
        for text in reversed(_read_all(self.paths).values()):
            for index in reversed(range(len(text.pieces))):
                task_id = text.pieces[index][0]
                entry = text.entry(index) if task_id not in seen else None
                seen.add(task_id)
                if entry is not None and entry.task is not None and not entry.error:
                    yield entry.task

    def find_merged(self, commits: Iterable[str]) -> tuple[Task, ...]:
        wanted = set(commits)
        pieces = [piece for text in _read_all(self.paths).values() for piece in text.pieces] if wanted else []
        ids = {task_id for task_id, piece in pieces if not wanted.isdisjoint(_MERGE.findall(piece))}
        tasks = (entry.task for entry in self.archived(ids).values() if not entry.error)
        return tuple(task for task in tasks if task is not None and task.merge_commit in wanted)

    def count_archived(self, without: Iterable[str]) -> ArchiveTotals:
        on_board = set(without)
        return archiving.totals_of(task for task in self.archived_tasks() if task.id not in on_board)

    def find_archive_damage(self, state: State) -> ArchiveFault | None:
        # Then an id that seems free may be that of an archived task. No entry is parsed.
        if not state.archived.total and not self.paths.archive.exists():
            return None
        try:
            texts = _read_all(self.paths)
        except BoardInconsistent as error:
            return ArchiveFault("archive", f"damaged: {error.message}", "a directory", error.hint, "the directory")
        for name, text in texts.items():
            if text.error:
                return ArchiveFault(f"archive/{name}", f"damaged: {text.error}", "a file of tasks", REPAIR, "the file")
        number = len(set(list_ids(self.paths)))
        if number >= state.archived.total:
            return None
        actual = f"the files have {number} of the {count_noun(state.archived.total, 'task')} that the board counts"
        return ArchiveFault("archive", f"damaged: {actual}", "every archived task", REPAIR, "the files")

    def find_faulty_entries(self) -> Iterator[ArchiveFault]:
        for name, text in _read_all(self.paths).items():
            command = f"$EDITOR {shlex.quote(str(self.paths.archive / name))}"
            for index, (task_id, _) in enumerate(text.pieces):
                if error := text.entry(index).error:
                    entry = f"archive/{name}: {task_id}" if task_id else f"archive/{name}"
                    yield ArchiveFault(entry, f"faulty: {error}", "an entry of a closed task", command, "the entry")

    def read_archive(self) -> Mapping[str, bytes]:
        return read_files(self.paths)
