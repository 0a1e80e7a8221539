"""The archived tasks of a crew as rows. An archived task that is on the board again has both."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import Final

from liza.board.archived_entries import HEAD, ArchivedEntry, ArchiveFault, parse_entry, split_text
from liza.board.postgresql.entry_rows import encode_value
from liza.board.postgresql.links import Links
from liza.board.rules.archiving import ArchiveTotals
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


def list_ids(links: Links) -> list[str]:
    """Return the ids of the archived tasks, the first archived first."""
    return [task_id for (task_id,) in links.ask_much(_IDS)]


def find_entries(links: Links, ids: Container[str]) -> dict[str, ArchivedEntry]:
    """Return the archived entries of these tasks."""
    wanted = list(ids) if isinstance(ids, Collection) else [task_id for task_id in list_ids(links) if task_id in ids]
    return (
        {task_id: parse_entry(task_id, text) for task_id, text in links.ask_much(_ENTRIES, ids=wanted)}
        if wanted
        else {}
    )


def iter_newest(links: Links) -> Iterator[Task]:
    """Yield the tasks that can be read, the last archived first; each is parsed when it is its turn."""
    for task_id, text in _iter_texts(links):
        entry = parse_entry(task_id, text)
        if entry.task is not None and not entry.error:
            yield entry.task


def _iter_texts(links: Links) -> Iterator[tuple[str, str]]:
    change, order = _AFTER_ALL
    while rows := links.ask_much(_NEWEST, change=change, ord=order):
        for task_id, text, change, order in rows:  # noqa: B007 - the last ones are those of the next query
            yield task_id, text


def find_merged(links: Links, commits: Iterable[str]) -> tuple[Task, ...]:
    """Return the archived tasks with one of these merge commits."""
    wanted = list(commits)
    entries = [parse_entry(*row) for row in links.ask_much(_MERGED, commits=wanted)] if wanted else []
    return tuple(entry.task for entry in entries if entry.task is not None and not entry.error)


def count_totals(links: Links, without: Iterable[str]) -> ArchiveTotals:
    """Return the totals of the archive without the tasks ``without``."""
    on_board = list(without)
    verdicts = links.ask(_VERDICTS, without=on_board, verdicts=[str(event) for event in VERDICTS])
    return ArchiveTotals(dict(links.ask(_STATUSES, without=on_board)), dict(verdicts))


def find_damage(links: Links, state: State) -> ArchiveFault | None:
    """Return that the database has fewer archived tasks than the board counts; None if all is well."""
    [(number,)] = links.ask(_COUNT)
    if number >= state.archived.total:
        return None
    actual = f"the database has {number} of the {count_noun(state.archived.total, 'task')} that the board counts"
    return ArchiveFault("archive", f"damaged: {actual}", "every archived task", "liza archive --repair", "the rows")


def find_faulty_entries(links: Links) -> Iterator[ArchiveFault]:
    """Yield the archived entries that cannot be read or are not closed. All entries are parsed."""
    for task_id, text in _iter_texts(links):
        if error := parse_entry(task_id, text).error:
            command = f"liza task show {task_id}"
            yield ArchiveFault(
                f"archive: {task_id}", f"faulty: {error}", "an entry of a closed task", command, "the entry"
            )


def read_files(links: Links) -> dict[str, bytes]:
    """Return the archive as files by name: one for each month in which tasks were archived, or several if it is long.

    An entry that is added changes the last file only.
    """
    parts: dict[str, list[list[str]]] = {}
    for month, text in links.ask_much(_FILES):
        files = parts.setdefault(month, [[HEAD]])
        if sum(map(len, files[-1])) > MAX_FILE_SIZE:
            files.append([HEAD])
        files[-1].append(text)
    return {
        f"{month}.yaml" if number == 1 else f"{month}.{number}.yaml": "".join(texts).encode()
        for month, files in parts.items()
        for number, texts in enumerate(files, 1)
    }


def find_lost(links: Links, recorded: Mapping[str, str], on_board: Container[str]) -> dict[str, dict[str, str]]:
    """Return the entries of ``recorded``, files by name, that are neither archived nor on the board: id → text."""
    present, lost = set(list_ids(links)), dict[str, dict[str, str]]()
    for name, text in recorded.items():
        entries = {key: piece for key, piece in split_text(text) if key not in present and key not in on_board}
        if entries:
            lost[name] = entries
            present |= entries.keys()
    return lost
