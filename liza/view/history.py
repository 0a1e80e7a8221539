"""history: tell what happened, or list the revisions of the board."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from liza.board import revision_journal, revision_texts
from liza.board.events import watch_changes
from liza.board.outside_edits import diff_texts
from liza.board.revision_journal import RevisionRecord
from liza.board.store import format_subject as subject
from liza.crew.crew import Crew
from liza.crew.recorder import read_conflict, record_if_unsupervised
from liza.git import board_history as recorded
from liza.model.errors import LizaError
from liza.model.model import State
from liza.model.narration import NewsItem, find_news, recall_news
from liza.model.paths import check_task_id as checked_id
from liza.model.value_classes import Value, replace
from liza.tasks import archive
from liza.text.formats import format_time


class PastNews(Value):
    """News of the board, oldest first. ``archived``: number of tasks whose events are in the archive."""

    items: tuple[NewsItem, ...]
    archived: int = 0


def recall_events(crew: Crew, task_id: str | None, limit: int) -> PastNews:
    """Return the newest ``limit`` events that matter to a person, of one task or of all. Raises UnknownId."""
    state = crew.board.read()
    if task_id is None:
        return PastNews(recall_news(state)[-limit:], state.archived.total)
    state = archive.with_archived(crew.paths, state, checked_id(task_id))
    return PastNews(recall_news(_only(state, task_id))[-limit:])


def follow_events(crew: Crew, task_id: str | None) -> Iterator[NewsItem]:
    """Yield each new event that matters to a person."""
    last = crew.board.read()
    for _ in watch_changes(crew.paths, crew.board):
        before, last = last, crew.board.read()
        pair = (before, last) if task_id is None else (_only(before, task_id), _only(last, task_id))
        yield from (item for item in find_news(*pair) if not item.is_detail)


def _only(state: State, task_id: str) -> State:
    """Return the board with one task, its notes and no decisions."""
    notes = tuple(note for note in state.human_notes if note.recipient == task_id)
    tasks = tuple(task for task in state.tasks if task.id == task_id)
    return replace(state, tasks=tasks, human_notes=notes, goal=replace(state.goal, alignment_history=()))


def history(crew: Crew, task_id: str | None, limit: int, patch: bool = False) -> list[dict[str, Any]]:
    """Return the newest ``limit`` revisions of one task or of all, newest first.

    Revisions that are not recorded in git yet come from the journal. Raises UnknownId, HistoryConflict, GitFailed.
    """
    if task_id is not None:
        archive.with_archived(crew.paths, crew.board.read(), checked_id(task_id))
    # This command only reads. Revisions that cannot be recorded now, for example on a full disk, come from the journal.
    with suppress(LizaError, OSError):
        record_if_unsupervised(crew)
    if (conflict := read_conflict(crew)) is not None:
        raise conflict  # the newest revisions in the history are not those of this board
    entries = recorded.list_revisions(crew.git, task_id, limit)
    newest = recorded.list_revisions(crew.git, None, 1)
    tip = newest[0].revision if newest else 0
    unrecorded_rows = _journal_rows(crew, _newer_records(crew, task_id, tip), patch)
    recorded_rows = [_recorded_row(crew, entry, patch) for entry in entries]
    return list(islice((*unrecorded_rows, *recorded_rows), limit))


def follow_history(
    crew: Crew, task_id: str | None, shown: Sequence[dict[str, Any]], patch: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the known revisions, oldest first, then each new one."""
    yield from reversed(shown)
    last_revision = shown[0]["revision"] if shown else 0
    for _ in watch_changes(crew.paths, crew.board):
        rows = _journal_rows(crew, _newer_records(crew, task_id, last_revision), patch)
        for row in reversed(rows):
            last_revision = row["revision"]
            yield row


def _newer_records(crew: Crew, task_id: str | None, revision: int) -> list[RevisionRecord]:
    """Journal records after ``revision``, newest first."""
    records = []
    for record in revision_journal.iter_newest_first(crew.paths.journal):
        if record.revision <= revision:
            break
        if task_id is None or record.task == task_id:
            records.append(record)
    return records


def _journal_rows(crew: Crew, records: Sequence[RevisionRecord], patch: bool) -> list[dict[str, Any]]:
    """Return a row for each record of the journal. ``patch``: with its changes, unless its text is lost."""
    if not patch or not records:
        return [_unrecorded_row(record) for record in records]
    patches = _unrecorded_patches(crew, frozenset(record.revision for record in records))
    missing = {record.revision for record in records} - patches.keys()
    if missing:
        # The journal loses its beginning, which is recorded.
        for entry in recorded.list_revisions(crew.git, None, _revision_count(crew, min(missing))):
            if entry.revision in missing:
                patches[entry.revision] = _read_patch(crew, entry.commit)
    return [{**_unrecorded_row(record), "patch": patches.get(record.revision)} for record in records]


def _unrecorded_patches(crew: Crew, revisions: frozenset[int]) -> dict[int, str]:
    """Return the changes of those of ``revisions`` that the journal has, without the times of leases."""
    patches: dict[int, str] = {}
    before = None
    for line, text in revision_texts.rebuild_texts(crew.paths.journal, min(revisions) - 1):
        if before is not None and line.revision in revisions:
            patches[line.revision] = diff_texts(before, text)
        before = text
    return patches


def _revision_count(crew: Crew, oldest: int) -> int:
    """Return how many of the newest recorded revisions reach back to ``oldest``; at least 1."""
    newest = recorded.list_revisions(crew.git, None, 1)
    return max(1, newest[0].revision - oldest + 1) if newest else 1


def _read_patch(crew: Crew, commit: str) -> str:
    return crew.git.out("show", "--no-color", "--no-ext-diff", "--format=", commit)


def _unrecorded_row(record: RevisionRecord) -> dict[str, Any]:
    return {
        "revision": record.revision,
        "time": record.time,
        "subject": subject(record),
        "by": record.actor,
        "commit": None,
        "patch": None,
        "alerts": list(record.alerts),
    }


def _recorded_row(crew: Crew, entry: recorded.Revision, patch: bool) -> dict[str, Any]:
    return {
        "revision": entry.revision,
        "time": format_time(entry.time),
        "subject": entry.subject,
        "by": entry.author,
        "commit": entry.commit,
        "patch": _read_patch(crew, entry.commit) if patch else None,
        "alerts": [],
    }
