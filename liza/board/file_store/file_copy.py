"""Read all files of a board for another store, and write the files of a board that comes from another store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from liza.board.archived_entries import HEAD, parse_entry, split_text
from liza.board.crew_copy import CrewCopy
from liza.board.file_store import archive_files, commit_steps, revision_journal, signal_files
from liza.board.file_store.write_intent import WriteIntent
from liza.board.revisions import format_record, sha
from liza.board.text.document import load_state
from liza.model.model import State
from liza.model.paths import Paths
from liza.system import atomic, files

_NO_MONTH: Final = "1970-01"
"""Month of an archived task without a history: a person deleted it."""
_ALL_ENTRIES: Final = (("", ""),)
"""In a write intent: the next revision has the whole text, because heartbeats may have changed any entry."""


def read_copy(paths: Paths, pages: Mapping[str, str]) -> CrewCopy:
    """Return all that the files have, with the documents ``pages``.

    The caller holds the lock of the board, and has repaired it.

    Raises BoardInconsistent, WriteFailed, OSError, NeedsSlowPath.
    """
    lines = tuple(revision_journal.iter_lines(paths.journal))[::-1]
    archived: dict[str, str] = {}
    for data in archive_files.read_files(paths).values():
        for task_id, piece in split_text(data.decode()):
            archived.pop(task_id, None)
            archived[task_id] = piece if piece.endswith("\n") else piece + "\n"
    signals = {name: signal.text for name, signal in signal_files.read_signals(paths).items()}
    return CrewCopy(paths.state.read_bytes().decode(), lines, archived, signals, pages)


def write_copy(paths: Paths, copy: CrewCopy) -> None:
    """Write the files of a board; there is none yet. The board itself is written last: until then there is no crew.

    Raises WriteFailed, OSError.
    """
    for directory in (paths.liza, paths.tx, paths.locks):
        directory.mkdir(parents=True, exist_ok=True)
    for name, text in _group_archive(copy.archived).items():
        archive_files.write_file(paths, name, text)
    *former, last = copy.lines
    files.write_synced(paths.journal, b"".join(map(format_record, former)))
    paths.specs.mkdir(exist_ok=True)
    for name, text in copy.pages.items():
        atomic.write(paths.specs / name, text.encode())
    for name, text in copy.signals.items():
        signal_files.raise_signal(paths, name, text)
    data = copy.text.encode()
    state: State = load_state(copy.text)
    intent = WriteIntent(max(state.revision, last.revision), "", sha(data), _ALL_ENTRIES)
    commit_steps.commit(paths, data, intent, last)


def _group_archive(archived: Mapping[str, str]) -> dict[str, str]:
    """Return the archive files by name: one for each month, and further ones if it is full."""
    months: dict[str, list[str]] = {}
    for task_id, piece in archived.items():
        months.setdefault(_find_month(task_id, piece), []).append(piece)
    grouped: dict[str, str] = {}
    for month, pieces in sorted(months.items()):
        name, number = f"{month}.yaml", 1
        for piece in pieces:
            text = grouped.get(name, HEAD)
            if text != HEAD and len(text.encode()) + len(piece.encode()) > archive_files.MAX_FILE_SIZE:
                number += 1
                name, text = f"{month}.{number}.yaml", HEAD
            grouped[name] = text + piece
    return grouped


def _find_month(task_id: str, piece: str) -> str:
    """Return the month of the last event of an archived task."""
    task = parse_entry(task_id, piece).task
    return f"{task.history[-1].time:%Y-%m}" if task is not None and task.history else _NO_MONTH
