"""history: tell what happened, or list the revisions of the board."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice, takewhile

from liza.board.contract import Board
from liza.board.repeated_looks import watch_changes
from liza.board.revision_texts import diff_texts
from liza.board.revisions import format_subject as subject
from liza.crew.crew import Crew
from liza.crew.recorder import read_conflict, record_if_unsupervised
from liza.git import board_history as recorded
from liza.git.runner import Git
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
        return PastNews(recall_news(state, limit), state.archived.total)
    state = archive.with_archived(crew.board, state, checked_id(task_id))
    return PastNews(recall_news(_only(state, task_id), limit))


def follow_events(crew: Crew, task_id: str | None) -> Iterator[NewsItem]:
    """Yield each new event that matters to a person."""
    last = crew.board.read()
    for _ in watch_changes(crew.board):
        before, last = last, crew.board.read()
        pair = (before, last) if task_id is None else (_only(before, task_id), _only(last, task_id))
        yield from (item for item in find_news(*pair) if not item.is_detail)


def _only(state: State, task_id: str) -> State:
    """Return the board with one task, its notes and no decisions."""
    notes = tuple(note for note in state.human_notes if note.recipient == task_id)
    tasks = tuple(task for task in state.tasks if task.id == task_id)
    return replace(state, tasks=tasks, human_notes=notes, goal=replace(state.goal, alignment_history=()))


class RevisionRow(Value):
    """A revision of the board as `history --json` prints it. ``commit``: None if git does not have it yet."""

    revision: int
    time: str
    subject: str
    by: str
    commit: str | None = None
    patch: str | None = None
    alerts: tuple[str, ...] = ()


def history(crew: Crew, task_id: str | None, limit: int, patch: bool = False) -> list[RevisionRow]:
    """Return the newest ``limit`` revisions of one task or of all, newest first.

    Revisions that are not recorded in git yet come from the journal, and all of a board on a server.

    Raises UnknownId, HistoryConflict, GitFailed.
    """
    if task_id is not None:
        archive.with_archived(crew.board, crew.board.read(), checked_id(task_id))
    if crew.is_on_server:
        return _journal_rows(crew.board, task_id, 0, patch, limit)
    # This command only reads. Revisions that cannot be recorded now, for example on a full disk, come from the journal.
    with suppress(LizaError, OSError):
        record_if_unsupervised(crew)
    if (conflict := read_conflict(crew)) is not None:
        raise conflict  # the newest revisions in the history are not those of this board
    entries = recorded.list_revisions(crew.git, task_id, limit)
    newest = recorded.list_revisions(crew.git, None, 1)
    unrecorded = _journal_rows(crew.board, task_id, newest[0].revision if newest else 0, patch)
    return [*unrecorded, *(_recorded_row(crew.git, entry, patch) for entry in entries)][:limit]


def follow_history(
    crew: Crew, task_id: str | None, shown: Sequence[RevisionRow], patch: bool = False
) -> Iterator[RevisionRow]:
    """Yield the known revisions, oldest first, then each new one."""
    yield from reversed(shown)
    last_revision = shown[0].revision if shown else 0
    for _ in watch_changes(crew.board):
        for row in reversed(_journal_rows(crew.board, task_id, last_revision, patch)):
            last_revision = row.revision
            yield row


def _journal_rows(
    board: Board, task_id: str | None, revision: int, patch: bool, limit: int | None = None
) -> list[RevisionRow]:
    """Return the newest ``limit`` revisions of the journal after ``revision``, newest first. ``patch``: with their
    changes."""
    newer = takewhile(lambda record: record.revision > revision, board.records())
    wanted = (record for record in newer if task_id is None or record.task == task_id)
    records = list(islice(wanted, limit))
    patches = _unrecorded_patches(board, frozenset(record.revision for record in records)) if patch and records else {}
    return [
        RevisionRow(
            revision=record.revision,
            time=record.time,
            subject=subject(record),
            by=record.actor,
            patch=patches.get(record.revision),
            alerts=record.alerts,
        )
        for record in records
    ]


def _unrecorded_patches(board: Board, revisions: frozenset[int]) -> dict[int, str]:
    """Return the changes of those of ``revisions`` that the journal has, without the times of leases."""
    patches: dict[int, str] = {}
    before = None
    for line, text in board.texts(min(revisions) - 1):
        if before is not None and line.revision in revisions:
            patches[line.revision] = diff_texts(before, text)
        before = text
    return patches


def _recorded_row(git: Git, entry: recorded.Revision, patch: bool) -> RevisionRow:
    changes = git.out("show", "--no-color", "--no-ext-diff", "--format=", entry.commit) if patch else None
    return RevisionRow(entry.revision, format_time(entry.time), entry.subject, entry.author, entry.commit, changes)
