"""Index of the archived tasks: where each entry is, and the facts that rules and reports need.

It is derived from the files of the archive and can be deleted at any time. Each use first compares the files with the
index by inode, size and mtime, and reads only what changed: after a move only the appended entries.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import msgspec

from liza.board import archive_files
from liza.board.archive_files import ArchivedEntry, ArchiveIntent
from liza.board.rules import archiving
from liza.board.rules.archiving import ArchiveTotals
from liza.board.text.parse import NeedsSlowPath
from liza.model import timings
from liza.model.errors import BoardInconsistent, NotRegularFile, UnknownId
from liza.model.gates import is_untested
from liza.model.model import FINAL_STATUSES, Status, Task
from liza.model.paths import Paths
from liza.model.timings import Span
from liza.model.value_classes import decodable
from liza.system import atomic, files, untrusted_files
from liza.text.undecoded import encode_json

_MAX_LOOKS: Final = 100  # looks at files that another process is changing
_INCOMPLETE: Final[files.Stamp] = (0, 0, 0)
"""Stamp of a file with a move under way: it is read again at the next use."""


class IndexedTask(msgspec.Struct, frozen=True, array_like=True):
    """An archived task as the index has it, with the place of its entry in bytes.

    ``error`` is why the entry cannot be read or does not count; then ``status`` is empty. ``verdicts`` has the events
    of its reviews, ``waited`` the times in which it waited for a person.
    """

    id: str
    offset: int
    length: int
    status: str = ""
    error: str = ""
    merge_commit: str | None = None
    review_commit: str | None = None
    superseded_by: tuple[str, ...] = ()
    verdicts: tuple[str, ...] = ()
    untested: bool = False
    waited: tuple[Span, ...] = ()


class _IndexedFile(msgspec.Struct, frozen=True, array_like=True):
    """An archive file as the index has it: the ``size`` bytes that were read. ``error`` is why they cannot be used."""

    stamp: files.Stamp
    size: int
    sha: str
    entries: tuple[IndexedTask, ...]
    error: str


class ArchiveIndex:
    """The index of one crew's archive. Each query first brings it up to date.

    All queries raise BoardInconsistent if the archive cannot be read, or keeps changing.
    """

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._files: dict[str, _IndexedFile] | None = None
        """The files by name, the oldest first; None until the first query."""

    def find(self, ids: Iterable[str]) -> dict[str, IndexedTask]:
        """Return the archived tasks among ``ids``."""
        wanted = set(ids)
        return {entry.id: entry for _, entry in self._entries() if entry.id in wanted}

    def find_merges(self, commits: Iterable[str]) -> tuple[IndexedTask, ...]:
        """Return the archived tasks with one of these merge commits."""
        wanted = set(commits)
        return tuple(entry for _, entry in self._entries() if entry.merge_commit in wanted)

    def newest_merges(self, number: int) -> tuple[str, ...]:
        """Return the merge commits of the merged tasks that were archived last, at most ``number``."""
        return tuple(entry.merge_commit for _, entry in reversed(self._entries()) if entry.merge_commit)[:number]

    def newest_ids(self, number: int) -> tuple[str, ...]:
        """Return the ids of the tasks that were archived last, at most ``number``."""
        return tuple(entry.id for _, entry in reversed(self._entries()) if not entry.error)[:number]

    def read_task(self, task_id: str) -> Task:
        """Return an archived task from its file. Raises UnknownId."""
        places = [(name, entry) for name, entry in self._entries() if entry.id == task_id]
        if not places:
            raise UnknownId(f"there is no task {task_id!r} in the archive", "liza task list")
        name, indexed = places[-1]
        entry = _read_entry(_complete_bytes(self._paths, name, archive_files.read_intent(self._paths)), indexed)
        if entry.task is None or entry.id != task_id:
            reason = entry.error or "the file has changed meanwhile"
            raise BoardInconsistent(f".liza/archive/{name}: the entry of {task_id}: {reason}", "liza validate")
        return entry.task

    def read_tasks(self, ids: Iterable[str]) -> dict[str, Task]:
        """Return those of the tasks whose entries can be read. Each file is read once."""
        wanted = set(ids)
        places = [(name, entry) for name, entry in self._entries() if entry.id in wanted]
        intent = archive_files.read_intent(self._paths)
        texts = {name: _complete_bytes(self._paths, name, intent) for name in {name for name, _ in places}}
        entries = (_read_entry(texts[name], indexed) for name, indexed in places)
        return {entry.id: entry.task for entry in entries if entry.task is not None and entry.id in wanted}

    def totals(self, without: Iterable[str] = ()) -> ArchiveTotals:
        """Return the totals of the archive without the tasks ``without``; a task that occurs twice counts once."""
        on_board = set(without)
        last = {entry.id: entry for _, entry in self._entries() if entry.id not in on_board and entry.id}
        statuses = Counter(entry.status for entry in last.values() if entry.status)
        return ArchiveTotals(statuses, Counter(verdict for entry in last.values() for verdict in entry.verdicts))

    def count_untested(self) -> int:
        """Return how many archived tasks were merged without a test."""
        return sum(entry.untested and entry.status == Status.MERGED for _, entry in self._entries())

    def waiting_spans(self) -> list[Span]:
        """Return the times in which archived tasks waited for a person."""
        return [span for _, entry in self._entries() for span in entry.waited]

    def find_faults(self) -> list[tuple[str, str, str]]:
        """Return what cannot be read or is not closed: file, id or an empty text, fault."""
        faults = [(name, "", file.error) for name, file in self._refresh().items() if file.error]
        return faults + [(name, entry.id, entry.error) for name, entry in self._entries() if entry.error]

    def find_repeated(self) -> list[tuple[str, str]]:
        """Return the tasks that occur more than once: file of the last entry, id."""
        last = {entry.id: name for name, entry in self._entries()}
        return [(last[task_id], task_id) for task_id, _ in self._repeated()]

    def find_copies(self) -> dict[str, list[int]]:
        """Return where entries begin that do not count, since a later one of the same task does: bytes by file.

        Not those of a task whose last entry cannot be read.
        """
        copies: dict[str, list[int]] = {}
        last = dict(self._repeated())
        for name, entry in self._entries():
            if entry.id in last and entry is not last[entry.id] and _is_readable(last[entry.id]):
                copies.setdefault(name, []).append(entry.offset)
        return copies

    def _repeated(self) -> list[tuple[str, IndexedTask]]:
        """Return the ids that occur more than once, each with its last entry, sorted by id."""
        last = {entry.id: entry for _, entry in self._entries()}
        counts = Counter(entry.id for _, entry in self._entries() if entry.id)
        return sorted((task_id, last[task_id]) for task_id, number in counts.items() if number > 1)

    def has_unreadable(self) -> bool:
        """Return whether a file or an entry cannot be read, or is not counted."""
        return bool(self.find_faults())

    def ids(self) -> list[str]:
        """Return the ids of all archived tasks."""
        return list(dict.fromkeys(entry.id for _, entry in self._entries() if entry.id))

    def appendable_sizes(self) -> dict[str, int]:
        """Return the sizes in bytes of the files to which entries can be appended, by name."""
        return {name: file.size for name, file in self._refresh().items() if not file.error}

    def stamps(self) -> dict[str, files.Stamp]:
        """Return the stamps of the files by name: they change whenever the archive has changed."""
        return {name: file.stamp for name, file in self._refresh().items()}

    # ── keeping it up to date ────────────────────────────────────────────────────────────────────────────────────

    def _entries(self) -> list[tuple[str, IndexedTask]]:
        """Return all entries with the names of their files, in the order in which they were archived."""
        return [(name, entry) for name, file in self._refresh().items() for entry in file.entries]

    def _refresh(self) -> dict[str, _IndexedFile]:
        """Index the files that changed, and return all. Raises BoardInconsistent."""
        if self._files is None:
            self._files = _read_index(self._paths)
        stamps = self._read_stamps()
        for _ in range(_MAX_LOOKS):
            intent = archive_files.read_intent(self._paths)
            if intent is None and stamps == {name: file.stamp for name, file in self._files.items()}:
                return self._files
            again = self._read_stamps()
            # An append ends before its intent is deleted. So without an intent, and with the sizes of before, no
            # file is in the course of being appended to. With an intent, its text counts, not the end of the file.
            if intent is not None or again == stamps:
                return self._index_changed(self._files, stamps, intent)
            stamps = again
        raise BoardInconsistent("the files in .liza/archive keep changing", f"ls -l {self._paths.archive}")

    def _read_stamps(self) -> dict[str, files.Stamp]:
        names = archive_files.list_names(self._paths)
        stamps = ((name, files.read_stamp(self._paths.archive / name)) for name in names)
        return {name: stamp for name, stamp in stamps if stamp is not None}

    def _index_changed(
        self, recorded: dict[str, _IndexedFile], stamps: dict[str, files.Stamp], intent: ArchiveIntent | None
    ) -> dict[str, _IndexedFile]:
        if intent is not None:
            stamps = {**stamps, intent.name: _INCOMPLETE}
        indexed = {}
        for name in sorted(stamps, key=archive_files.sort_key):
            former = recorded.get(name)
            is_current = former is not None and former.stamp == stamps[name] != _INCOMPLETE
            indexed[name] = former if former and is_current else self._index_file(name, stamps[name], former, intent)
        self._files = indexed
        # Each process can make it again. Of several writers the last one counts, and the next use corrects it.
        with suppress(OSError):
            atomic.write(self._paths.archive_index, encode_json(indexed), sync=False)
        return indexed

    def _index_file(
        self, name: str, stamp: files.Stamp, former: _IndexedFile | None, intent: ArchiveIntent | None
    ) -> _IndexedFile:
        """Index one file: the entries behind the indexed part if that is unchanged, else all."""
        data = b""
        try:
            data = _complete_bytes(self._paths, name, intent)
            data = data if stamp == _INCOMPLETE else data[: stamp[2]]
            is_longer = former is not None and not former.error and _sha(data[: former.size]) == former.sha
            start, entries = _split_from(data, former.size if former and is_longer else 0)
        except (BoardInconsistent, NeedsSlowPath) as failure:
            return _IndexedFile(stamp, len(data), _sha(data), (), str(failure))
        kept = former.entries if former and start else ()
        return _IndexedFile(stamp, len(data), _sha(data), (*kept, *map(_index_entry, entries)), "")


def _read_index(paths: Paths) -> dict[str, _IndexedFile]:
    with suppress(OSError, NotRegularFile, ValueError, RecursionError):
        data = untrusted_files.read(paths.archive_index)
        return msgspec.json.decode(data, type=decodable(dict[str, _IndexedFile]))
    return {}


def _index_entry(entry: ArchivedEntry) -> IndexedTask:
    task = entry.task
    if task is None:
        return IndexedTask(entry.id, entry.offset, entry.length, error=entry.error)
    # An entry that a person made open again is reported, and not counted.
    is_closed = task.status in FINAL_STATUSES
    return IndexedTask(
        entry.id,
        entry.offset,
        entry.length,
        status=task.status.value if is_closed else "",
        error="" if is_closed else f"its status is {task.status}, which is not final",
        merge_commit=task.merge_commit,
        review_commit=task.review_commit,
        superseded_by=task.superseded_by,
        verdicts=tuple(Counter(archiving.totals_of((task,)).verdicts).elements()),
        untested=is_untested(task),
        waited=tuple(timings.waiting_spans(task, archiving.closed_at(task))),
    )


def _is_readable(entry: IndexedTask) -> bool:
    return not entry.error


def _read_entry(data: bytes, indexed: IndexedTask) -> ArchivedEntry:
    piece = data[indexed.offset : indexed.offset + indexed.length]
    return archive_files.parse_entry(piece.decode(errors="replace"), indexed.offset)


def _split_from(data: bytes, start: int) -> tuple[int, list[ArchivedEntry]]:
    """Return the entries from ``start``, or all if the text there belongs to the entry before. Raises NeedsSlowPath."""
    if start:
        with suppress(NeedsSlowPath):
            return start, archive_files.split_file(data, start)
    return 0, archive_files.split_file(data)


def _complete_bytes(paths: Paths, name: str, intent: ArchiveIntent | None) -> bytes:
    """Return the bytes of a file; during a move as they will be at its end."""
    if intent is None or intent.name != name:
        return archive_files.read_bytes(paths, name)
    try:
        data = archive_files.read_bytes(paths, name)
    except BoardInconsistent:
        data = b""
    text = intent.text.encode()
    return data[: intent.size] + text if text.startswith(data[intent.size :]) else data


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
