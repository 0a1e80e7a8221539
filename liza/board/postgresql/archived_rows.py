"""The archived tasks of a crew as rows. An archived task that is on the board again has both."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import Final

from liza.board.archived_entries import HEAD, ArchivedEntry, ArchiveFault, parse_entry, split_text
from liza.board.postgresql.entry_rows import encode_value
from liza.board.postgresql.links import Links
from liza.board.rules.archiving import ArchiveTotals
from liza.board.stored_board import StoredBoard
from liza.model.history_events import VERDICTS
from liza.model.model import State, Task
from liza.text.formats import count_noun

MAX_FILE_SIZE: Final = 1 << 20
"""Characters of an archive file of the history, to which entries are added; a longer month has more files."""
_IDS: Final = "SELECT task FROM archived WHERE crew = %(crew)s ORDER BY change, ord"
_ENTRIES: Final = """
SELECT task, body FROM archived WHERE crew = %(crew)s AND task = ANY(%(ids)s) ORDER BY change, ord"""
_NEWEST: Final = """
SELECT task, body, change, ord FROM archived WHERE crew = %(crew)s AND (change, ord) < (%(change)s, %(ord)s)
ORDER BY change DESC, ord DESC LIMIT 128"""
_MERGED: Final = """
SELECT task, body FROM archived WHERE crew = %(crew)s AND merge_commit = ANY(%(commits)s) ORDER BY change, ord"""
_STATUSES: Final = """
SELECT status, count(*) FROM archived WHERE crew = %(crew)s AND status <> '' AND task <> ALL(%(without)s)
GROUP BY status"""
_VERDICTS: Final = """
SELECT event->>'event', count(*) FROM archived, jsonb_array_elements(value->'history') event
WHERE crew = %(crew)s AND status <> '' AND task <> ALL(%(without)s) AND event->>'event' = ANY(%(verdicts)s)
GROUP BY 1"""
_COUNT: Final = "SELECT count(*) FROM archived WHERE crew = %(crew)s"
_FILES: Final = """
SELECT to_char(time AT TIME ZONE 'UTC', 'YYYY-MM'), body FROM archived WHERE crew = %(crew)s ORDER BY change, ord"""
_AFTER_ALL: Final = (1 << 62, 0)


def describe_moved(moved: Mapping[str, str]) -> dict[str, tuple[str, str | None]]:
    """Return the rows of archived tasks: id → text and value in JSON, None if the task cannot be read or is open."""
    entries = {task_id: parse_entry(task_id, text) for task_id, text in moved.items()}
    return {
        task_id: (text, None if entries[task_id].error else encode_value(task_id, entries[task_id].task))
        for task_id, text in moved.items()
    }


class ArchivedRows(StoredBoard):
    """The part of a board in PostgreSQL that answers questions about archived tasks."""

    _links: Links

    def archived_ids(self) -> list[str]:
        return [task_id for (task_id,) in self._links.ask_much(_IDS)]

    def archived(self, ids: Container[str]) -> dict[str, ArchivedEntry]:
        wanted = list(ids) if isinstance(ids, Collection) else [task for task in self.archived_ids() if task in ids]
        rows = self._links.ask_much(_ENTRIES, ids=wanted) if wanted else ()
        return {task_id: parse_entry(task_id, text) for task_id, text in rows}

    def archived_tasks(self) -> Iterator[Task]:
        for task_id, text in self._iter_texts():
            entry = parse_entry(task_id, text)
            if entry.task is not None and not entry.error:
                yield entry.task

    def _iter_texts(self) -> Iterator[tuple[str, str]]:
        """Yield the ids and texts of the archived tasks, the last archived first."""
        change, order = _AFTER_ALL
        while rows := self._links.ask_much(_NEWEST, change=change, ord=order):
            for task_id, text, change, order in rows:  # noqa: B007 - the last ones are those of the next query
                yield task_id, text

    def find_merged(self, commits: Iterable[str]) -> tuple[Task, ...]:
        wanted = list(commits)
        entries = [parse_entry(*row) for row in self._links.ask_much(_MERGED, commits=wanted)] if wanted else []
        return tuple(entry.task for entry in entries if entry.task is not None and not entry.error)

    def count_archived(self, without: Iterable[str]) -> ArchiveTotals:
        on_board = list(without)
        verdicts = self._links.ask(_VERDICTS, without=on_board, verdicts=[str(event) for event in VERDICTS])
        return ArchiveTotals(dict(self._links.ask(_STATUSES, without=on_board)), dict(verdicts))

    def find_archive_damage(self, state: State) -> ArchiveFault | None:
        [(number,)] = self._links.ask(_COUNT)
        if number >= state.archived.total:
            return None
        actual = f"the database has {number} of the {count_noun(state.archived.total, 'task')} that the board counts"
        return ArchiveFault("archive", f"damaged: {actual}", "every archived task", "liza archive --repair", "the rows")

    def find_faulty_entries(self) -> Iterator[ArchiveFault]:
        for task_id, text in self._iter_texts():
            if error := parse_entry(task_id, text).error:
                name, command = f"archive: {task_id}", f"liza task show {task_id}"
                yield ArchiveFault(name, f"faulty: {error}", "an entry of a closed task", command, "the entry")

    def read_archive(self) -> Mapping[str, bytes]:
        # One file for each month in which tasks were archived, or several if it is long. An entry that is added changes
        # the last file only.
        parts: dict[str, list[list[str]]] = {}
        for month, text in self._links.ask_much(_FILES):
            files = parts.setdefault(month, [[HEAD]])
            if sum(map(len, files[-1])) > MAX_FILE_SIZE:
                files.append([HEAD])
            files[-1].append(text)
        return {
            f"{month}.yaml" if number == 1 else f"{month}.{number}.yaml": "".join(texts).encode()
            for month, files in parts.items()
            for number, texts in enumerate(files, 1)
        }

    def _find_lost(self, recorded: Mapping[str, str], on_board: Container[str]) -> dict[str, dict[str, str]]:
        """Return the entries of ``recorded``, files by name, that are neither archived nor on the board: id → text."""
        present, lost = set(self.archived_ids()), dict[str, dict[str, str]]()
        for name, text in recorded.items():
            entries = {key: piece for key, piece in split_text(text) if key not in present and key not in on_board}
            if entries:
                lost[name] = entries
                present |= entries.keys()
        return lost
