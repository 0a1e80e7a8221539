"""task list: return the tasks of the board, or those of the archive, as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from liza.board import archive_files
from liza.board.archive_files import ArchivedEntry
from liza.crew.crew import Crew
from liza.model.errors import UsageError
from liza.model.model import State, Status
from liza.model.state_words import TaskWord, find_statuses
from liza.model.value_classes import Value
from liza.tasks import draft_specs
from liza.text.suggestions import did_you_mean
from liza.view.rules.picture import task_rows
from liza.view.rules.queue_rows import queue_rows
from liza.view.rules.structs import TaskRow
from liza.view.status import find_off


class TaskList(Value):
    """Tasks in the order of the board, and how many tasks of the archive have the same statuses, by status."""

    tasks: tuple[TaskRow, ...]
    archived: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        return _list_fields([row.fields() for row in self.tasks], self.archived)


def list_tasks(crew: Crew, words: Sequence[str] | None = None) -> TaskList:
    """Return the tasks of the board. ``words``: the only statuses, or words for statuses.

    Raises UsageError for an unknown word.
    """
    wanted = _parse_statuses(words)
    state = crew.board.read()
    missing = draft_specs.find_incomplete_drafts(crew, state)
    tasks = (task for task in state.tasks if task.status in wanted)
    rows = task_rows(state, tasks, missing, find_off(crew, state), queue_rows(state, crew.clock.now()))
    return TaskList(tuple(rows), _count_archived(state, wanted))


def list_archived(crew: Crew, words: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the tasks of the archive by id, with their outcomes. A task whose entry cannot be read has the ``error``,
    and is always among them.

    Raises UsageError for an unknown word, BoardInconsistent if the archive cannot be read.
    """
    wanted = _parse_statuses(words)
    state = crew.board.read()
    entries = archive_files.find_entries(crew.paths, set(archive_files.list_ids(crew.paths)))
    rows = [
        _archived_row(task_id, entry)
        for task_id, entry in sorted(entries.items())
        if state.task(task_id) is None and (entry.error or (entry.task and entry.task.status in wanted))
    ]
    return _list_fields(rows, _count_archived(state, wanted))


def _archived_row(task_id: str, entry: ArchivedEntry) -> dict[str, Any]:
    task = None if entry.error else entry.task
    return {
        "id": task_id,
        "status": task.status.value if task else "",
        "error": entry.error,
        "merge_commit": task and task.merge_commit,
        "review_commit": task and task.review_commit,
        "superseded_by": list(task.superseded_by) if task else [],
    }


def _list_fields(tasks: list[dict[str, Any]], archived: Mapping[str, int]) -> dict[str, Any]:
    return {"tasks": tasks, "archived": {"total": sum(archived.values()), "by_status": dict(archived)}}


def _count_archived(state: State, wanted: frozenset[Status]) -> dict[str, int]:
    return {name: number for name, number in state.archived.counts.items() if name in wanted}


def _parse_statuses(words: Sequence[str] | None) -> frozenset[Status]:
    """Return the statuses that are meant; all without a word."""
    return frozenset().union(*map(_parse_status, words)) if words else frozenset(Status)


def _parse_status(word: str) -> frozenset[Status]:
    if meant := find_statuses(word):
        return meant
    try:
        return frozenset({Status(word.upper().replace("-", "_"))})
    except ValueError:
        expected = f"one of {', '.join([*TaskWord, *Status])}{did_you_mean(word, [*TaskWord, *Status])}"
        raise UsageError(f"{word!r} is not a status; expected {expected}", "liza task list") from None
